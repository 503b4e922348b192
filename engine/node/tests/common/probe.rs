//! A well-meant client that goes on while others misbehave, and how long its requests took.

use super::{Background, Deadline, PROBE_VALUE, RawClient, batch, pause};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Gap between two requests: it measures, it does not load.
const GAP: Duration = Duration::from_millis(2);

/// Fewer answers say nothing of the slowest of a hundred.
const ANSWERS_MIN: usize = 20;

/// Appends one record after the other through one node, acks=all.
pub struct Probe {
    taken: Arc<Mutex<Vec<(Instant, Duration)>>>,
    thread: Background<()>,
}

impl Probe {
    /// Starts; `address` must be the leader's and stay it.
    pub fn start(address: &str) -> Self {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let (out, address) = (Arc::clone(&taken), address.to_owned());
        let thread = Background::start(move |stop| {
            let mut client = RawClient::connect(&address).expect("a connection");
            let batch = batch(PROBE_VALUE);
            while !stop.load(Ordering::Acquire) {
                let start = Instant::now();
                let produced = client.produce(&batch).expect("an answer");
                assert_eq!(produced.error, 0, "the leader refuses");
                out.lock().expect("no panic").push((start, start.elapsed()));
                pause(GAP);
            }
        });
        Self { taken, thread }
    }

    /// The 99th percentile of the requests begun while `during` ran.
    ///
    /// All of the time, if there were too few to speak of one: the machine stood still then.
    pub fn p99_during(&self, during: impl FnOnce()) -> Duration {
        let start = Instant::now();
        during();
        let end = Instant::now();
        // Those begun before the end are answered soon after it.
        let deadline = Deadline::after(Duration::from_secs(10));
        while self
            .taken
            .lock()
            .expect("no panic")
            .last()
            .is_none_or(|(at, _)| *at < end)
        {
            deadline.check("the next answer for a well-meant client");
            pause(Duration::from_millis(1));
        }
        let taken = self.taken.lock().expect("no panic");
        let within = taken.iter().filter(|(at, _)| (start..end).contains(at));
        let mut times: Vec<Duration> = within.map(|(_, took)| *took).collect();
        times.sort();
        if times.len() < ANSWERS_MIN {
            return end - start;
        }
        times[(times.len() * 99 / 100).min(times.len() - 1)]
    }

    /// Stops. The worst of all.
    pub fn finish(self) -> Duration {
        self.thread.stop();
        self.thread.join();
        let taken = self.taken.lock().expect("no panic");
        taken
            .iter()
            .map(|(_, took)| *took)
            .max()
            .unwrap_or_default()
    }
}
