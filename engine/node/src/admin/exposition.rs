//! Prometheus' text format, version 0.0.4: families of samples with help and type.
//!
//! Pure text. What is exposed is `prometheus`'s matter.

use crate::metrics::{Counts, Histogram, NamedCounters};
use std::fmt::{Display, Write as _};

/// A page of metrics in the making.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
}

/// What a family is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Labels of a sample: names that need no escaping, values that may.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

impl Exposition {
    /// Begins a family; its samples follow.
    pub(super) fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("it is a String");
    }

    /// A sample of the family begun last.
    pub(super) fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        self.text.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            self.text.push(if index == 0 { '{' } else { ',' });
            write!(self.text, "{label}=\"").expect("it is a String");
            push_escaped(&mut self.text, value);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        writeln!(self.text, " {value}").expect("it is a String");
    }

    /// A family of one sample without labels.
    pub(super) fn one(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// Counts by name, as samples with one more label.
    pub(super) fn named(
        &mut self,
        name: &str,
        labels: Labels<'_>,
        label: &str,
        counters: &NamedCounters,
    ) {
        for (value, count) in counters.read() {
            let labels: Vec<_> = labels.iter().copied().chain([(label, value)]).collect();
            self.sample(name, &labels, count);
        }
    }

    /// A histogram of the family begun last.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        labels: Labels<'_>,
        scale: &Scale,
        histogram: &Histogram,
    ) {
        let counts: Counts = histogram.read();
        let bucket = format!("{name}_bucket");
        for bound in scale.bounds() {
            let shown = scale.show(bound);
            let labels: Vec<_> = labels.iter().copied().chain([("le", &*shown)]).collect();
            self.sample(&bucket, &labels, counts.below(bound));
        }
        let all = counts.count();
        let labels_inf: Vec<_> = labels.iter().copied().chain([("le", "+Inf")]).collect();
        self.sample(&bucket, &labels_inf, all);
        self.sample(&format!("{name}_sum"), labels, scale.show(counts.sum()));
        self.sample(&format!("{name}_count"), labels, all);
    }

    /// The page.
    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// Which buckets of a histogram are shown, and in which unit.
///
/// The bounds are powers of two and the middles between them, since those are exact in the
/// histograms (see [`Counts::below`]). A bucket holds values below its bound; as they are whole
/// numbers of the recorded unit, that Prometheus says "not above" makes no difference that matters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// The least bound is 2 to this.
    pub first_bit: u32,
    /// The greatest bound.
    pub last_bit: u32,
    /// What a value is to be divided by.
    pub divisor: u32,
    /// Whether the middles are shown.
    pub halves: bool,
}

/// Times in ns, from 16 us to 17 s, shown in seconds.
pub(super) const SECONDS: Scale = Scale {
    first_bit: 14,
    last_bit: 34,
    divisor: 1_000_000_000,
    halves: true,
};

/// Sizes from 64 bytes to 16 MiB.
pub(super) const BYTES: Scale = Scale {
    first_bit: 6,
    last_bit: 24,
    divisor: 1,
    halves: false,
};

/// Numbers from 1 to 16,384.
pub(super) const NUMBERS: Scale = Scale {
    first_bit: 0,
    last_bit: 14,
    divisor: 1,
    halves: false,
};

impl Scale {
    fn bounds(self) -> impl Iterator<Item = u64> {
        (self.first_bit..=self.last_bit).flat_map(move |bit| {
            let whole = 1u64 << bit;
            let middle = (self.halves && bit < self.last_bit).then_some(whole + whole / 2);
            [Some(whole), middle].into_iter().flatten()
        })
    }

    #[allow(clippy::cast_precision_loss)] // for people
    fn show(self, value: u64) -> String {
        match self.divisor {
            1 => value.to_string(),
            divisor => (value as f64 / f64::from(divisor)).to_string(),
        }
    }
}

fn push_escaped(text: &mut String, value: &str) {
    for char in value.chars() {
        match char {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            _ => text.push(char),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_escaped() {
        let mut page = Exposition::default();
        page.family("a", Kind::Gauge, "Help.");
        page.sample("a", &[("x", "q\"\\\n"), ("y", "")], -1);
        assert_eq!(
            page.into_text(),
            "# HELP a Help.\n# TYPE a gauge\na{x=\"q\\\"\\\\\\n\",y=\"\"} -1\n"
        );
    }

    #[test]
    fn a_histogram_is_cumulative_and_ends_with_infinity() {
        let histogram = Histogram::default();
        for value in [0, 1, 2, 3, 40_000] {
            histogram.record(value);
        }
        let mut page = Exposition::default();
        let scale = Scale {
            first_bit: 1,
            last_bit: 3,
            ..NUMBERS
        };
        page.histogram("h", &[("s", "t")], &scale, &histogram);
        assert_eq!(
            page.into_text(),
            "h_bucket{s=\"t\",le=\"2\"} 2\nh_bucket{s=\"t\",le=\"4\"} 4\n\
             h_bucket{s=\"t\",le=\"8\"} 4\nh_bucket{s=\"t\",le=\"+Inf\"} 5\n\
             h_sum{s=\"t\"} 40006\nh_count{s=\"t\"} 5\n"
        );
    }

    #[test]
    fn times_are_shown_in_seconds() {
        assert_eq!(SECONDS.show(1 << 30), "1.073741824");
        assert_eq!(SECONDS.bounds().count(), 41);
        assert_eq!(SECONDS.bounds().next(), Some(16_384));
    }
}
