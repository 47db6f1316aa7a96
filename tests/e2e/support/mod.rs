//! What the end-to-end tests share.
#![allow(dead_code, reason = "each test program uses its part")]

pub(crate) mod certificate;
pub(crate) mod download;
pub(crate) mod network;
pub(crate) mod repository;
pub(crate) mod stand_in;

use std::process::Command;
use std::time::{Duration, Instant};

/// The program under test.
pub(crate) fn cacheboy() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cacheboy"));
    command.env_remove("CACHEBOY_LOG");
    command
}

/// What a finished command left.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs a command to its end.
pub(crate) fn output(command: &mut Command) -> Ran {
    let program = command.get_program().to_owned();
    let output = command.output().unwrap_or_else(|error| {
        panic!("cannot run {}: {error}: tests/run installs it", program.display())
    });
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Waits for a condition; fails loudly when it does not come.
pub(crate) fn until(what: &str, condition: impl FnMut() -> bool) {
    until_within(20, what, condition);
}

/// The same where it may take so many seconds.
#[allow(clippy::disallowed_methods, reason = "a real deadline for real processes")]
pub(crate) fn until_within(seconds: u64, what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    while !condition() {
        assert!(Instant::now() < deadline, "waited {seconds} s in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
