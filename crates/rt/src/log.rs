//! Logs: one line an event on standard error, `CACHEBOY_LOG` chooses the detail
//! (for example `debug` or `edge=debug,info`).

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts logging for this process. Called once by the binary before any role starts.
///
/// `role` stands first on every line when several processes write to one terminal or journal.
pub fn init() {
    let filter = EnvFilter::try_from_env("CACHEBOY_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}
