//! Handing over: a process starts its successor, gives it the listening sockets, then what is on
//! disk, and ends when what it was sending has ended.
//!
//! The two talk over a socket pair, in lines:
//!
//! | Who | Line | Means |
//! |---|---|---|
//! | successor | `ready` | its config is sound, its addresses are bound |
//! | successor | `failed WHY` | it cannot; it ends |
//! | predecessor | `yours` | what is on disk was let go |
//! | successor | `serving` | every role serves |
//!
//! Until `yours` nothing has changed, and a failure leaves the predecessor as it was. After it the
//! predecessor goes on serving without writing ([`crate::Phase::Yielded`]) and starts another until
//! one serves. Then it drains. The end of its process closes the pair, by which the successor knows:
//! it ends no earlier than its predecessor, so that whoever waits for the one waits for both.
//!
//! [`Handed`] is what a process was left at its start, [`sockets`] the sockets, [`predecessor`] the
//! other side.

mod predecessor;
pub mod sockets;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

pub use predecessor::Predecessor;
pub use sockets::Sockets;

/// Names the descriptor of the pair's other end.
const DIALOGUE: &str = "CACHEBOY_PREDECESSOR";
/// How long each step may take: a large index is loaded between `yours` and `serving`.
const STEP: Duration = Duration::from_secs(120);
/// Longest line.
const LINE_BYTES_MAX: u64 = 4096;

/// Why a dialogue cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum DialogueError {
    /// The other side is gone.
    #[error("the other process has ended")]
    Gone,
    /// It takes too long.
    #[error("the other process said nothing for {} s", STEP.as_secs())]
    Late,
    /// It says what nobody expects here.
    #[error("the other process said {0:?}")]
    Unexpected(String),
    /// The pair does not work.
    #[error("the other process cannot be talked to")]
    Pair(#[from] io::Error),
}

/// One end of the pair.
#[derive(Debug)]
struct Dialogue(BufReader<UnixStream>);

impl Dialogue {
    /// Needs a tokio runtime.
    fn new(stream: StdStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self(BufReader::new(UnixStream::from_std(stream)?)))
    }

    async fn say(&mut self, line: &str) -> Result<(), DialogueError> {
        let line = format!("{}\n", line.replace('\n', " "));
        Ok(self.0.get_mut().write_all(line.as_bytes()).await?)
    }

    /// The next line, without its end.
    async fn hear(&mut self) -> Result<String, DialogueError> {
        let mut line = String::new();
        let mut limited = (&mut self.0).take(LINE_BYTES_MAX);
        let read = tokio::time::timeout(STEP, limited.read_line(&mut line)).await;
        match read.map_err(|_| DialogueError::Late)? {
            Ok(_) if line.ends_with('\n') => Ok(line.trim_end().to_owned()),
            _ => Err(DialogueError::Gone),
        }
    }

    /// Returns when the other process has ended.
    async fn gone(&mut self) {
        let mut rest = [0; 64];
        while self.0.read(&mut rest).await.is_ok_and(|read| read > 0) {}
    }
}

/// What this process was left at its start.
#[derive(Debug, Default)]
pub struct Handed {
    /// Its sockets.
    pub sockets: Sockets,
    predecessor: Option<StdStream>,
}

impl Handed {
    /// Reads it from the environment. To be called once.
    pub fn take() -> Self {
        let number = std::env::var(DIALOGUE).ok().and_then(|number| number.parse().ok());
        let predecessor = number.and_then(|number| sys::process::take_left_open(number).ok());
        Self { sockets: Sockets::from_environment(), predecessor: predecessor.map(StdStream::from) }
    }

    /// Whether a predecessor has started this process.
    pub fn is_successor(&self) -> bool {
        self.predecessor.is_some()
    }

    /// This process's side of the dialogue. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the pair cannot be used.
    pub fn dialogue(self) -> io::Result<Successor> {
        let predecessor = self.predecessor;
        let pid = predecessor.as_ref().map(|_| std::os::unix::process::parent_id());
        let dialogue = predecessor.map(Dialogue::new).transpose()?;
        Ok(Successor { dialogue, pid })
    }
}

/// A process that begins, towards the one before it; without one it says and waits for nothing.
#[derive(Debug)]
pub struct Successor {
    dialogue: Option<Dialogue>,
    pid: Option<u32>,
}

impl Successor {
    /// The process id of the predecessor.
    pub fn predecessor(&self) -> Option<u32> {
        self.pid
    }

    /// All is sound so far: waits until what is on disk is this process's, by the word of its
    /// predecessor or since that has ended.
    ///
    /// # Errors
    /// When it will not be.
    pub async fn take_over(&mut self) -> Result<(), DialogueError> {
        let Some(dialogue) = &mut self.dialogue else { return Ok(()) };
        let answer = match dialogue.say("ready").await {
            Ok(()) => dialogue.hear().await,
            Err(error) => Err(error),
        };
        match answer.as_deref() {
            Ok("yours") => Ok(()),
            Ok(other) => Err(DialogueError::Unexpected(other.to_owned())),
            // Nobody serves, and nobody holds what is on disk. One that gave this process up, and
            // lives, has killed it.
            Err(DialogueError::Gone | DialogueError::Pair(_)) => {
                tracing::warn!("the process before has ended without a word: this one takes over");
                Ok(())
            }
            Err(DialogueError::Late) => Err(DialogueError::Late),
            Err(DialogueError::Unexpected(_)) => answer.map(drop),
        }
    }

    /// Every role serves.
    ///
    /// # Errors
    /// When the predecessor is gone; there is nobody to be told then.
    pub async fn serving(&mut self) -> Result<(), DialogueError> {
        match &mut self.dialogue {
            Some(dialogue) => dialogue.say("serving").await,
            None => Ok(()),
        }
    }

    /// It cannot be done.
    pub async fn failed(&mut self, why: &str) {
        if let Some(dialogue) = &mut self.dialogue {
            // A predecessor that is gone needs no reason.
            let _ = dialogue.say(&format!("failed {why}")).await;
        }
    }

    /// Returns when the predecessor, and all before it, have ended.
    pub async fn predecessor_gone(&mut self) {
        if let Some(dialogue) = &mut self.dialogue {
            dialogue.gone().await;
        }
    }
}

/// A pair: one end to talk over, and the other for the successor, with what names it.
fn pair() -> io::Result<(StdStream, OwnedFd, String)> {
    let (ours, theirs) = StdStream::pair()?;
    let number = theirs.as_raw_fd().to_string();
    Ok((ours, theirs.into(), number))
}
