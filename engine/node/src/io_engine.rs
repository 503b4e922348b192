//! Which engine the node's rings stand on: what the host offers decides, within what `io.engine`
//! allows. Decided once, before anything on disk is touched; nothing changes over later.

use crate::config::IoEngine;
use quorate_ring::{Engine, RingError};
use thiserror::Error;

/// io_uring is asked for and not to be had.
#[derive(Debug, Error)]
#[error("{source}; io.engine=auto or threads does without io_uring, more slowly")]
pub struct NoUring {
    /// Why not, and what to do about it.
    source: RingError,
}

/// The engine for all rings of this process. Warns, once, when `Auto` has to do without io_uring.
///
/// # Errors
/// `Uring` on a host that does not offer it; any other failure to open a ring, such as no more
/// file descriptors, unless threads are asked for.
pub fn choose(wanted: IoEngine) -> Result<Engine, NoUring> {
    match wanted {
        IoEngine::Threads => Ok(Engine::Threads),
        IoEngine::Uring | IoEngine::Auto => decide(wanted, quorate_ring::probe()),
    }
}

fn decide(wanted: IoEngine, probed: Result<(), RingError>) -> Result<Engine, NoUring> {
    let source = match probed {
        Ok(()) => return Ok(Engine::Uring),
        Err(source) => source,
    };
    let is_withheld = matches!(
        source,
        RingError::Forbidden { .. } | RingError::Unsupported { .. }
    );
    if wanted == IoEngine::Auto && is_withheld {
        tracing::warn!(
            "{source}. Going on with io.engine=threads: as durable, and slower. \
             io.engine=threads in the configuration says that this is wanted"
        );
        return Ok(Engine::Threads);
    }
    Err(NoUring { source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unsupported() -> Result<(), RingError> {
        Err(RingError::Unsupported { feature: "this" })
    }

    #[test]
    fn only_auto_does_without_io_uring() {
        let auto = decide(IoEngine::Auto, unsupported());
        assert_eq!(auto.unwrap(), Engine::Threads);
        let refused = decide(IoEngine::Uring, unsupported()).unwrap_err();
        assert!(refused.to_string().contains("lacks this"), "{refused}");
        assert!(refused.to_string().contains("io.engine=auto"), "{refused}");
    }

    #[test]
    fn a_host_that_is_out_of_something_is_no_host_without_io_uring() {
        let out_of_descriptors = std::io::Error::from_raw_os_error(libc::EMFILE);
        let refused = decide(IoEngine::Auto, Err(out_of_descriptors.into()));
        assert!(refused.is_err());
    }

    #[test]
    fn threads_do_not_even_ask() {
        assert_eq!(choose(IoEngine::Threads).unwrap(), Engine::Threads);
        assert_eq!(decide(IoEngine::Auto, Ok(())).unwrap(), Engine::Uring);
    }
}
