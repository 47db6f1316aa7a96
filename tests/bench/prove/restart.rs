//! Hand-overs of the edge to successors while it is asked.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::time::{sleep, timeout};

use crate::admin;

/// Between two of them, and before the first.
const PAUSE: Duration = Duration::from_secs(2);
/// A successor that does not serve for so long never will.
const PATIENCE: Duration = Duration::from_secs(30);

/// So many hand-overs, one after the other.
pub(crate) async fn restart(admin: &Path, times: u32) -> Result<()> {
    for _ in 0..times {
        sleep(PAUSE).await;
        let before = admin::pid(admin).await?;
        let sent = Command::new("kill").args(["-s", "HUP", &before.to_string()]).status()?;
        ensure!(sent.success(), "{before} cannot be signalled");
        let succeeded = async {
            // Nobody may answer in between.
            while admin::pid(admin).await.unwrap_or(before) == before {
                sleep(PAUSE / 40).await;
            }
        };
        timeout(PATIENCE, succeeded).await.context("no successor came")?;
    }
    Ok(())
}
