//! A question about a key with a second master: when the first one lets its client wait longer than
//! it usually does, another is asked too, and the first good answer is taken. The same for the parts
//! of an object is decided by the fill machine.

use std::time::Duration;

use fill::{Failure, MasterId};
use http_cache::errors::{Meaning, meaning};
use rt::clock;

use crate::fetch::Ask;
use crate::home;
use crate::question::Question;
use crate::state::Edge;
use crate::upstream::Answer;

/// Asks `master`, and perhaps another; the answer says who gave it. A failure is the first one's.
/// `tried`: who was asked before and is not asked again.
pub(crate) async fn put(
    edge: &Edge,
    ask: &Ask,
    question: &Question,
    master: MasterId,
    tried: &[MasterId],
) -> Result<Answer, Failure> {
    let project = &ask.project;
    project.note_fill();
    let first = question.put(edge, ask, master, tried);
    tokio::pin!(first);
    let patience = Duration::from_millis(project.patience_ms(master));
    if let Ok(answer) = tokio::time::timeout(patience, &mut first).await {
        return answer;
    }
    let asked = [tried, &[master]].concat();
    let Some(rival) = project.rival(clock::now(), &ask.key, home::of(ask), &asked) else {
        return first.await;
    };
    tokio::select! {
        biased;
        answer = &mut first => answer,
        answer = question.put(edge, ask, rival, &asked) => match answer {
            Ok(answer) if is_good(ask, question, &answer) => {
                project.reach.hedges_won.inc();
                project.sources.handle_failed(master, Failure::Slow, clock::now());
                Ok(answer)
            }
            // It is asked again in its turn, if that comes.
            Ok(_) => first.await,
            Err(why) => {
                project.sources.handle_failed(rival, why, clock::now());
                first.await
            }
        },
    }
}

/// Whether nobody else need be heard.
fn is_good(ask: &Ask, question: &Question, answer: &Answer) -> bool {
    let is_content = matches!(meaning(answer.parts.status), Meaning::Good | Meaning::NotModified);
    is_content && question.is_answered_by(&answer.reply()) && !home::differs(ask, answer)
}
