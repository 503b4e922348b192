//! Placing a loop on a processor.

use std::io;
use std::mem::{size_of, zeroed};

/// Binds the calling thread to processor `cpu` (0 is the first).
///
/// # Errors
/// EINVAL if there is no such processor, or the process may not use it.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: a cpu_set_t is an array of integers; all zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: `cpu` is below CPU_SETSIZE, so the bit lies within the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set is valid for the size given and only read.
    let result = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_on_the_processor_it_was_given() {
        std::thread::spawn(|| {
            pin_to_cpu(0).unwrap();
            // SAFETY: takes no arguments.
            assert_eq!(unsafe { libc::sched_getcpu() }, 0);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_processor_that_is_not_there_is_an_error() {
        for cpu in [1023, 1024, usize::MAX] {
            assert_eq!(
                pin_to_cpu(cpu).unwrap_err().raw_os_error(),
                Some(libc::EINVAL)
            );
        }
    }
}
