//! Parents and children.

use std::io;

/// Asks the kernel to send SIGTERM to this process when the thread that started it ends, so that
/// children of a killed `demo` do not stay behind and hold its addresses.
///
/// # Errors
/// As `prctl(2)` has them.
pub fn end_with_parent() -> io::Result<()> {
    // SAFETY: PR_SET_PDEATHSIG takes one integer and touches no memory of ours.
    let result = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends SIGTERM to the child `pid`, which the caller started and has not reaped yet.
///
/// # Errors
/// As `kill(2)` has them; `InvalidInput` for a number that is no process id.
pub fn terminate(pid: u32) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 1).ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: kill takes two integers and touches no memory of ours.
    let result = unsafe { libc::kill(pid, libc::SIGTERM) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    #[test]
    fn a_child_is_terminated_and_nothing_else_can_be() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        super::terminate(child.id()).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        for pid in [0, 1, u32::MAX] {
            assert!(super::terminate(pid).is_err(), "{pid}");
        }
    }
}
