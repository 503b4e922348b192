//! Decisions from the bytes of an input. At its end every answer is the same, so that each input
//! means something.

/// The bytes not used yet.
pub(crate) struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte, 0 at the end.
    pub(crate) fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or_default()
    }

    /// The next two bytes as a number.
    pub(crate) fn word(&mut self) -> usize {
        usize::from(self.byte()) << 8 | usize::from(self.byte())
    }

    /// Up to `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// One of `choices`, by the next byte.
    pub(crate) fn choose<'c, T>(&mut self, choices: &'c [T]) -> &'c T {
        &choices[usize::from(self.byte()) % choices.len()]
    }
}
