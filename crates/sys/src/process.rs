//! Parents and children, and the open files that one leaves to the other.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

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

/// Has the calling thread, and those that it starts, give way to all others that want a processor: they get
/// some ten times as much of it (nice 10).
pub fn give_way() {
    // SAFETY: setpriority takes integers and touches no memory of ours; 0 is the calling thread. A thread
    // may always lower its own priority; where it cannot, it goes on as before.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
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

/// Leaves `descriptors` open in the process that `command` starts, under the numbers they have here.
pub fn leave_open(command: &mut Command, descriptors: Vec<OwnedFd>) {
    let clear = move || {
        descriptors.iter().try_for_each(|descriptor| {
            // SAFETY: fcntl takes integers and touches no memory; the descriptor is owned by the
            // closure, so it is open.
            let done = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFD, 0) };
            if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        })
    };
    // SAFETY: between fork and exec the closure calls fcntl alone, which is async-signal-safe; it
    // takes no lock and allocates nothing.
    unsafe { command.pre_exec(clear) };
}

/// Takes a descriptor that the process that started this one left open. From now on it is not left
/// open to others.
///
/// # Errors
/// `InvalidInput` when `number` was not left open so; the system's otherwise.
pub fn take_left_open(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl takes integers and touches no memory of ours, whatever the number.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    // The three standard ones are the standard library's. Whatever this process opened itself is
    // closed on exec, since Rust opens everything so: what is not came from outside.
    if number <= libc::STDERR_FILENO || flags < 0 || flags & libc::FD_CLOEXEC != 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: as above.
    let done = unsafe { libc::fcntl(number, libc::F_SETFD, flags | libc::FD_CLOEXEC) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, nobody in this process opened it, and nobody takes it a second time,
    // since it is marked now.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    #[test]
    fn what_is_left_open_is_open_there_and_nothing_else_can_be_taken() {
        use std::io::Read;
        use std::os::fd::AsRawFd;
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let number = theirs.as_raw_fd();
        assert!(super::take_left_open(number).is_err(), "it is this process's own");
        assert!(super::take_left_open(0).is_err() && super::take_left_open(-1).is_err());
        let mut command = Command::new("sh");
        command.args(["-c", &format!("printf hello >&{number}")]);
        super::leave_open(&mut command, vec![theirs.into()]);
        assert!(command.status().unwrap().success());
        drop(command);
        let mut said = String::new();
        ours.read_to_string(&mut said).unwrap();
        assert_eq!(said, "hello");
    }

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
