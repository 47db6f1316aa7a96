//! The event log: what changed, when, why, and the evidence; one JSON document a line.
//!
//! `events.jsonl` of the state directory is appended to, until it is [`FILE_BYTES_MAX`] long; then it
//! becomes `events.1.jsonl`, and what was there is gone. A disk that hangs or fails loses events, and
//! holds up nobody.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use health_proto::Event;
use tokio::sync::mpsc;

use crate::aside;
use crate::webhook::Webhook;

/// Length at which a file makes room for the next, bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Batches of events that wait for the disk.
const WAITING_MAX: usize = 64;

/// Hands events to the thread that writes them, and to the webhook.
#[derive(Debug)]
pub(crate) struct EventLog {
    lines: mpsc::Sender<Vec<Event>>,
    webhook: Option<Webhook>,
}

impl EventLog {
    /// Starts the thread, which ends with this value.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(crate) fn start(state_dir: PathBuf, webhook: Option<Webhook>) -> io::Result<Self> {
        let (sender, mut receiver) = mpsc::channel::<Vec<Event>>(WAITING_MAX);
        aside::start(move || {
            while let Some(events) = receiver.blocking_recv() {
                if let Err(error) = append(&state_dir, &events, FILE_BYTES_MAX) {
                    let lost = events.len();
                    tracing::error!(%error, lost, "events cannot be written: check space and permissions");
                }
            }
        })?;
        Ok(Self { lines: sender, webhook })
    }

    /// Has these written, unless too many wait already.
    pub(crate) fn write(&self, events: Vec<Event>) {
        if let Some(webhook) = &self.webhook {
            webhook.write(&events);
        }
        let count = events.len();
        if count > 0 && self.lines.try_send(events).is_err() {
            tracing::error!(lost = count, "the disk does not take events: they are lost");
        }
    }
}

fn append(state_dir: &Path, events: &[Event], bytes_max: u64) -> io::Result<()> {
    let path = state_dir.join("events.jsonl");
    if fs::metadata(&path).is_ok_and(|about| about.len() >= bytes_max) {
        fs::rename(&path, state_dir.join("events.1.jsonl"))?;
    }
    let mut lines = Vec::new();
    for event in events {
        serde_json::to_writer(&mut lines, event)?;
        lines.push(b'\n');
    }
    File::options().create(true).append(true).open(&path)?.write_all(&lines)
}

#[cfg(test)]
mod tests {
    use health_proto::event::What;

    use super::*;

    #[test]
    fn events_are_lines_in_two_files_of_bounded_length() {
        let dir = tempfile::tempdir().unwrap();
        let event = |at_ms| Event {
            at_ms,
            what: What::Alarm,
            node: None,
            family: None,
            project: None,
            master: None,
            from: String::new(),
            to: "panic".into(),
            reason: "a test".into(),
            evidence: None,
        };
        for at_ms in 1..=5 {
            append(dir.path(), &[event(at_ms), event(at_ms)], 200).unwrap();
        }
        let read = |name: &str| -> Vec<Event> {
            let text = fs::read_to_string(dir.path().join(name)).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        let (old, new) = (read("events.1.jsonl"), read("events.jsonl"));
        assert_eq!(new.last(), Some(&event(5)));
        assert_eq!(old.last().map(|e| e.at_ms + 1), new.first().map(|e| e.at_ms));
    }
}
