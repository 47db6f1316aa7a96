//! The side that starts a successor and gives everything to it.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::signal::unix::Signal;

use super::sockets::SOCKETS;
use super::{DIALOGUE, Dialogue, DialogueError, STEP, pair};
use crate::metrics::host as metric;
use crate::{Context, Phase, notify};

/// Pause before another successor is started, once what is on disk was given up.
const AGAIN: Duration = Duration::from_secs(3);

/// The first process of a system or container.
const FIRST: u32 = 1;

/// Why a hand-over did not come about.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the process cannot be started")]
    Spawn(#[source] std::io::Error),
    #[error("it says: {0}")]
    Refused(String),
    #[error(transparent)]
    Dialogue(#[from] DialogueError),
    #[error("what is on disk cannot be let go: {0} not done in time")]
    Yield(String),
    #[error("this process was told to leave meanwhile")]
    Leaving,
    #[error(
        "this is the first process of its container, which would end with it: stop and start instead"
    )]
    FirstProcess,
}

impl Failure {
    /// The stable word.
    fn word(&self) -> &'static str {
        match self {
            Self::Spawn(_) => "spawn",
            Self::Refused(_) => "refused",
            Self::Dialogue(DialogueError::Late) => "late",
            Self::Dialogue(DialogueError::Gone | DialogueError::Pair(_)) => "died",
            Self::Dialogue(DialogueError::Unexpected(_)) => "protocol",
            Self::Yield(_) => "yield",
            Self::Leaving => "leaving",
            Self::FirstProcess => "first-process",
        }
    }
}

/// A process that hands over when it is told to.
#[derive(Debug)]
pub struct Predecessor {
    context: Context,
    program: OsString,
    arguments: Vec<OsString>,
    /// How long running responses have after a hand-over.
    deadline: Duration,
    successor: Arc<Mutex<Option<u32>>>,
    /// Its end is that of every process beside it.
    is_first: bool,
}

/// A successor that is killed when it is given up.
struct Starting {
    child: Child,
    serves: bool,
}

impl Drop for Starting {
    fn drop(&mut self) {
        if !self.serves {
            // It has ended already, or ends now; the runtime reaps it.
            let _ = self.child.start_kill();
        }
    }
}

impl Predecessor {
    /// Starts successors of this process by the way it was started itself.
    pub fn new(context: Context, deadline: Duration) -> Self {
        let mut words = std::env::args_os();
        let program = words.next().unwrap_or_default();
        Self::by(context, deadline, program, words.collect())
    }

    /// Starts successors by `program`.
    fn by(
        context: Context,
        deadline: Duration,
        program: OsString,
        arguments: Vec<OsString>,
    ) -> Self {
        let is_first = std::process::id() == FIRST;
        Self { context, program, arguments, deadline, successor: Arc::default(), is_first }
    }

    /// Where the process id of the successor appears.
    pub fn successor(&self) -> Arc<Mutex<Option<u32>>> {
        Arc::clone(&self.successor)
    }

    /// Hands over at each signal until a successor serves; then drains, and keeps the pair open to
    /// the end of the process.
    pub async fn conduct(self, mut hang_up: Signal) {
        let shutdown = &self.context.shutdown;
        loop {
            tokio::select! {
                heard = hang_up.recv() => if heard.is_none() { return },
                () = shutdown.reached(Phase::Draining) => {
                    self.context.sockets.release();
                    return;
                }
            }
            if let Some(pair) = self.until_one_serves().await {
                self.context.sockets.release();
                shutdown.drain(self.deadline);
                shutdown.reached(Phase::Cut).await;
                drop(pair);
                return;
            }
        }
    }

    /// Tries once; again and again when what is on disk was given up.
    async fn until_one_serves(&self) -> Option<Dialogue> {
        let shutdown = &self.context.shutdown;
        loop {
            tracing::info!(program = %self.program.display(), "starting a successor");
            notify::reloading();
            self.reload_certificates();
            let attempt = tokio::select! {
                attempt = self.attempt() => attempt,
                () = shutdown.told_to_leave() => Err(Failure::Leaving),
            };
            let word = attempt.as_ref().map_or_else(Failure::word, |_| "done");
            self.context.metrics.counter(&metric::HANDOVERS, &[word]).inc();
            let failure = match attempt {
                Ok(pair) => {
                    tracing::info!("a successor serves: what runs here is finished");
                    return Some(pair);
                }
                Err(failure) => failure,
            };
            *self.successor.lock().unwrap_or_else(PoisonError::into_inner) = None;
            let gave_up = shutdown.has_yielded();
            shutdown.lose_successor();
            tracing::error!(
                reason = word,
                error = chain(&failure),
                gave_up,
                "no successor serves: this process goes on"
            );
            notify::ready(&format!("no successor serves ({word}): the former process goes on"));
            if !gave_up || matches!(failure, Failure::Leaving) {
                return None;
            }
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                () = shutdown.told_to_leave() => return None,
            }
        }
    }

    /// What the successor does anyway; this process serves for a while yet, or goes on.
    fn reload_certificates(&self) {
        let Some(certificates) = self.context.certificates.clone() else { return };
        tokio::task::spawn_blocking(move || match certificates.reload() {
            Ok(()) => tracing::info!("certificates were read again"),
            Err(error) => tracing::warn!(%error, "certificates stay as they were"),
        });
    }

    async fn attempt(&self) -> Result<Dialogue, Failure> {
        if self.is_first {
            return Err(Failure::FirstProcess);
        }
        let (ours, theirs, number) = pair().map_err(Failure::Spawn)?;
        // Outlives `starting`: a successor that is given up is killed before it hears of it.
        let mut pair = Dialogue::new(ours).map_err(Failure::Spawn)?;
        let (mut descriptors, list) =
            self.context.sockets.for_successor().map_err(Failure::Spawn)?;
        descriptors.push(theirs);
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env(DIALOGUE, number).env(SOCKETS, list);
        for of_this_process in ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_PID"] {
            command.env_remove(of_this_process);
        }
        sys::process::leave_open(command.as_std_mut(), descriptors);
        let child = command.spawn().map_err(Failure::Spawn)?;
        // The copies of the descriptors go with the command: what is left is the successor's.
        drop(command);
        *self.successor.lock().unwrap_or_else(PoisonError::into_inner) = child.id();
        let mut starting = Starting { child, serves: false };
        expect(&mut pair, "ready").await?;
        self.context.shutdown.give_up();
        self.context.yielding.run(STEP).await.map_err(|late| Failure::Yield(late.join(", ")))?;
        pair.say("yours").await?;
        expect(&mut pair, "serving").await?;
        starting.serves = true;
        Ok(pair)
    }
}

async fn expect(pair: &mut Dialogue, word: &str) -> Result<(), Failure> {
    let line = pair.hear().await?;
    match line.strip_prefix("failed ") {
        Some(why) => Err(Failure::Refused(why.to_owned())),
        None if line == word => Ok(()),
        None => Err(DialogueError::Unexpected(line).into()),
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line.push_str(": ");
        line.push_str(&error.to_string());
        cause = error.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its successors are scripts that say what they are told to.
    fn predecessor(context: &Context, program: &str, script: &str) -> Predecessor {
        let arguments = vec!["-c".into(), script.into()];
        Predecessor::by(context.clone(), Duration::from_secs(9), program.into(), arguments)
    }

    #[tokio::test]
    async fn what_fails_before_it_is_given_up_changes_nothing() {
        for (program, script, word) in [
            ("bash", "exit 1", "died"),
            ("bash", "echo failed no such address >&$CACHEBOY_PREDECESSOR", "refused"),
            ("bash", "echo hello >&$CACHEBOY_PREDECESSOR", "protocol"),
            ("/nowhere/cacheboy", "", "spawn"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let context = Context::new("edge1".parse().unwrap(), dir.path().to_owned());
            context.on_yield("stores", async { panic!("they stay") });
            let predecessor = predecessor(&context, program, script);
            assert!(predecessor.until_one_serves().await.is_none(), "{script}");
            assert_eq!(context.shutdown.phase(), Phase::Serving, "{script}");
            assert!(!context.shutdown.is_alone(), "{script}");
            assert_eq!(context.metrics.counter(&metric::HANDOVERS, &[word]).get(), 1, "{script}");
        }
    }

    #[tokio::test]
    async fn the_first_process_of_a_container_stays() {
        let dir = tempfile::tempdir().unwrap();
        let context = Context::new("edge1".parse().unwrap(), dir.path().to_owned());
        let started = dir.path().join("started");
        let predecessor = Predecessor {
            is_first: true,
            ..predecessor(&context, "touch", &started.display().to_string())
        };
        assert!(predecessor.until_one_serves().await.is_none());
        let refused = context.metrics.counter(&metric::HANDOVERS, &["first-process"]);
        assert_eq!((refused.get(), started.exists()), (1, false));
        assert_eq!(context.shutdown.phase(), Phase::Serving);
    }

    #[tokio::test]
    async fn one_that_dies_with_what_it_was_given_is_followed_by_another() {
        let dir = tempfile::tempdir().unwrap();
        let tried = dir.path().join("tried");
        let script = format!(
            "echo ready >&$CACHEBOY_PREDECESSOR; read line <&$CACHEBOY_PREDECESSOR; \
             [ \"$line\" = yours ] || exit 1; [ -e {0} ] || {{ touch {0}; exit 1; }}; \
             echo serving >&$CACHEBOY_PREDECESSOR",
            tried.display()
        );
        let context = Context::new("edge1".parse().unwrap(), dir.path().to_owned());
        let (sender, done) = tokio::sync::oneshot::channel();
        context.on_yield("stores", async move { sender.send(()).unwrap() });
        let predecessor = predecessor(&context, "bash", &script);
        assert!(predecessor.until_one_serves().await.is_some());
        done.await.unwrap();
        assert!(context.shutdown.has_yielded() && !context.shutdown.is_leaving());
        assert!(!context.shutdown.is_alone(), "the second one is there");
        let count = |word| context.metrics.counter(&metric::HANDOVERS, &[word]).get();
        assert_eq!((count("died"), count("done")), (1, 1));
    }
}
