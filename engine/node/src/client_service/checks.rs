//! Checks the records inside compressed batches before anything of a request is appended.
//!
//! What takes less than about a millisecond is checked at once. The rest is handed out, to a thread
//! of its own, so that no batch keeps the raft loop from votes and Fetches; until the result is
//! back, the later Produce requests of the same connection wait in line, since their order counts.
//! What waits is bounded by the limit on bytes of requests in flight.

use super::{Answer, Asker, ClientService, Lane};
use crate::clock::Now;
use crate::connections::ConnectionId;
use crate::replica::Replica;
use quorate_net::wire::produce::ProduceRequest;
use quorate_raft::Role;
use quorate_storage::format::{BatchError, BatchHeader, Codec, Decompressor};
use std::collections::{HashMap, VecDeque};

/// Decompressed bytes of one request that are looked at on the raft loop: at the slowest, gzip and
/// records of seven bytes, some two milliseconds.
const AT_ONCE_BYTES_MAX: u64 = 128 * 1024;

/// Compressed bytes of which so much may come that it is not even tried.
const AT_ONCE_COMPRESSED_MAX: usize = 64 * 1024;

/// Checks handed out at a time, enough to keep their thread at work; more wait here, where they are
/// dropped with the connection that they came from.
const HANDED_OUT_MAX: usize = 4;

/// A request may make a thread decompress so many times what one batch may hold: neighbours of one
/// batch that holds too much are still checked.
const BATCHES_PER_REQUEST: u64 = 2;

/// Names a check that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CheckId(u64);

/// A request to check, handed out.
#[derive(Debug)]
pub struct BatchCheck {
    id: CheckId,
    request: ProduceRequest,
    bytes_max: u64,
}

impl BatchCheck {
    /// Checks it. Takes up to some hundred milliseconds.
    #[must_use]
    pub fn run(self, decompressor: &mut Decompressor) -> BatchChecked {
        let mut left = self.bytes_max.saturating_mul(BATCHES_PER_REQUEST);
        let mut faults = Vec::new();
        for (place, batch) in compressed_batches(&self.request) {
            let allowed = left.min(self.bytes_max);
            let checked = decompressor.check(batch, allowed);
            left -= *checked.as_ref().unwrap_or(&allowed);
            faults.extend(checked.err().map(|fault| (place, fault)));
        }
        BatchChecked {
            id: self.id,
            request: self.request,
            verdicts: Verdicts {
                are_known: true,
                faults,
            },
        }
    }
}

/// A checked request.
#[derive(Debug)]
pub struct BatchChecked {
    id: CheckId,
    request: ProduceRequest,
    verdicts: Verdicts,
}

/// What is known of the compressed batches of a request.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    are_known: bool,
    /// What is wrong, by the place of the batch in the request.
    faults: Vec<(usize, BatchError)>,
}

impl Verdicts {
    /// What is wrong with the records of the compressed batch at `place`.
    ///
    /// # Panics
    /// If nobody has looked: it would be appended unseen.
    pub(super) fn of(&self, place: usize) -> Option<&BatchError> {
        assert!(self.are_known, "a compressed batch that nobody has checked");
        let fault = self.faults.iter().find(|(faulty, _)| *faulty == place);
        fault.map(|(_, fault)| fault)
    }
}

/// The compressed batches of a request and their places among all of its batches. Those whose
/// header is no header are left out: they are refused anyway.
fn compressed_batches(request: &ProduceRequest) -> impl Iterator<Item = (usize, &[u8])> {
    let topics = request.topic_data.iter();
    let batches = topics.flat_map(|topic| &topic.partition_data);
    batches.enumerate().filter_map(|(place, partition)| {
        let batch = partition.records.as_deref()?;
        let header = BatchHeader::parse(batch).ok()?;
        (header.codec() != Codec::None).then_some((place, batch))
    })
}

/// A connection in its lane.
type LineId = (Lane, ConnectionId);

/// Requests of one connection: the first is being checked, the others wait for it.
struct Line {
    first: Asker,
    others: VecDeque<(Asker, ProduceRequest)>,
}

/// Checks under way.
pub(super) struct Checks {
    bytes_max: u64,
    decompressor: Decompressor,
    lines: HashMap<LineId, Line>,
    ready: VecDeque<BatchCheck>,
    handed_out: HashMap<CheckId, LineId>,
    next_id: u64,
}

impl Checks {
    /// Batches may be `bytes_max` bytes large when decompressed.
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            decompressor: Decompressor::new(),
            lines: HashMap::new(),
            ready: VecDeque::new(),
            handed_out: HashMap::new(),
            next_id: 0,
        }
    }

    /// Checks a request, unless that takes too long.
    fn at_once(&mut self, request: &ProduceRequest) -> Option<Verdicts> {
        let compressed: usize = compressed_batches(request)
            .map(|(_, batch)| batch.len())
            .sum();
        if compressed > AT_ONCE_COMPRESSED_MAX {
            return None;
        }
        let mut left = AT_ONCE_BYTES_MAX.min(self.bytes_max);
        let mut faults = Vec::new();
        for (place, batch) in compressed_batches(request) {
            match self.decompressor.check(batch, left) {
                Ok(bytes) => left -= bytes,
                Err(BatchError::Decompressed(_)) => return None,
                Err(fault) => faults.push((place, fault)),
            }
        }
        Some(Verdicts {
            are_known: true,
            faults,
        })
    }

    /// Drops the requests of those that are gone. None of these was appended.
    pub(super) fn forget(&mut self, is_gone: &impl Fn(Asker) -> bool) {
        let lines = &mut self.lines;
        lines.retain(|_, line| !is_gone(line.first));
        let handed_out = &mut self.handed_out;
        self.ready.retain(|check| {
            let is_wanted =
                (handed_out.get(&check.id)).is_some_and(|line| lines.contains_key(line));
            if !is_wanted {
                handed_out.remove(&check.id);
            }
            is_wanted
        });
    }

    fn hand_out(&mut self, asker: Asker, request: ProduceRequest) {
        let id = CheckId(self.next_id);
        self.next_id += 1;
        let line = line_of(asker);
        let others = VecDeque::new();
        self.lines.insert(
            line,
            Line {
                first: asker,
                others,
            },
        );
        self.handed_out.insert(id, line);
        self.ready.push_back(BatchCheck {
            id,
            request,
            bytes_max: self.bytes_max,
        });
    }
}

fn line_of(asker: Asker) -> LineId {
    (asker.lane, asker.origin.connection)
}

impl ClientService {
    /// The next check for the thread that does them, while it has not too many.
    pub fn next_check(&mut self) -> Option<BatchCheck> {
        let out = self.checks.handed_out.len() - self.checks.ready.len();
        if out >= HANDED_OUT_MAX {
            return None;
        }
        self.checks.ready.pop_front()
    }

    /// A Produce came in: it is checked and appended, or gets in line.
    pub(super) fn take_produce(
        &mut self,
        now: Now,
        replica: &mut Replica,
        asker: Asker,
        request: ProduceRequest,
        answers: &mut Vec<Answer>,
    ) {
        if let Some(line) = self.checks.lines.get_mut(&line_of(asker)) {
            line.others.push_back((asker, request));
            return;
        }
        let leads = !self.refuses_appends && replica.raft().role() == Role::Leader;
        // Who does not lead refuses every batch, whatever is in it.
        let verdicts = if leads {
            self.checks.at_once(&request)
        } else {
            Some(Verdicts::default())
        };
        match verdicts {
            Some(verdicts) => self.produce(now, replica, asker, &request, &verdicts, answers),
            None => self.checks.hand_out(asker, request),
        }
    }

    /// A check is done: its request is served, and those in line behind it.
    pub fn on_checked(
        &mut self,
        now: Now,
        replica: &mut Replica,
        checked: BatchChecked,
        answers: &mut Vec<Answer>,
    ) {
        let BatchChecked {
            id,
            request,
            verdicts,
        } = checked;
        let line_id = self.checks.handed_out.remove(&id);
        let Some(line_id) = line_id else { return };
        let Some(Line { first, mut others }) = self.checks.lines.remove(&line_id) else {
            return;
        };
        self.produce(now, replica, first, &request, &verdicts, answers);
        while let Some((asker, request)) = others.pop_front() {
            self.take_produce(now, replica, asker, request, answers);
            if let Some(line) = self.checks.lines.get_mut(&line_id) {
                line.others = others;
                return;
            }
        }
    }
}
