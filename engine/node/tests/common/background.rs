//! A thread of a test that goes on until it is told to stop, at the latest when the test ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// The thread. Dropped, it is told to stop but not waited for.
pub struct Background<T> {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Background<T> {
    /// Starts `run`, which ends soon after its argument becomes true.
    pub fn start(run: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let thread = Some(thread::spawn(move || run(&until)));
        Self { stop, thread }
    }

    /// Tells it to stop.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Waits until it has ended. What it came to.
    ///
    /// # Panics
    /// If it panicked; its own message stands above.
    pub fn join(mut self) -> T {
        let thread = self.thread.take().expect("joined once");
        thread.join().expect("a background thread of the test")
    }
}

impl<T> Drop for Background<T> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}
