//! Plays the conversations of `tests/conversations/http/*.txt` against the rules.
//!
//! Each is the life of one object at one edge: what a client asks, what the rules decide, what
//! upstream is asked and says, what the client gets, and how time passes. The edge here is the
//! smallest that obeys the rules; it holds whole objects, so how blocks are filled is not its
//! matter. See `README.md` beside the scripts for the words.

mod script;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, StatusCode};
use http_cache::errors::{ErrorRun, Meaning, may_replace, meaning};
use http_cache::hygiene::{fill_request, pass_request, pass_response};
use http_cache::{
    CacheStatus, Forward, Identity, Key, NoCache, Place, Plan, Policy, ProxyError, Reply, Request,
    Selecting, Served, Step, StoredHead, Variants, freshness, key, merge_304, next_step,
    proxy_status, range_headers, respond, revalidation_headers, same_representation, storable,
};
use model::{Name, Now};

use script::{Line, Verb};

/// The edge of a conversation.
struct Edge {
    now: Now,
    me: Identity,
    project: Name,
    policy: Policy,
    held: BTreeMap<Key, (StoredHead, u64)>,
    records: BTreeMap<Key, Variants>,
    errors: BTreeMap<Key, ErrorRun>,
    asking: Option<Asking>,
    decided: Option<String>,
    outcome: Option<String>,
    answer: Option<Answer>,
}

/// A client's request under way.
struct Asking {
    client: HeaderMap,
    request: Request,
    base: Key,
    key: Key,
    selecting: Selecting,
    step: Step,
    since: Now,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    content: Option<String>,
}

impl From<Plan> for Answer {
    fn from(plan: Plan) -> Self {
        let parts: Vec<_> = plan.content().map(|r| format!("{}-{}", r.start, r.end - 1)).collect();
        let content = if parts.is_empty() { "none".into() } else { parts.join(",") };
        Self { status: plan.status, headers: plan.headers, content: Some(content) }
    }
}

impl Edge {
    fn new() -> Result<Self, String> {
        let name = |n: &str| n.parse::<Name>().map_err(|e| e.to_string());
        Ok(Self {
            now: script::START,
            me: Identity::new(&name("edge1")?),
            project: name("project")?,
            policy: Policy::default(),
            held: BTreeMap::new(),
            records: BTreeMap::new(),
            errors: BTreeMap::new(),
            asking: None,
            decided: None,
            outcome: None,
            answer: None,
        })
    }

    fn play(&mut self, line: &Line) -> Result<(), String> {
        let fields = line.fields(self.now)?;
        match &line.verb {
            Verb::Policy(name, n) => self.set_policy(name, *n),
            Verb::TimePasses(seconds) => {
                self.now = self.now.plus_ms(seconds * 1000);
                Ok(())
            }
            Verb::ClockGoesBack(seconds) => {
                self.now.wall_ms -= seconds * 1000;
                Ok(())
            }
            Verb::Client(method, target) => self.client(method, target, fields.headers()?),
            Verb::Upstream(status, length) => {
                let mut headers = fields.headers()?;
                if let Some(length) = length {
                    headers.insert(CONTENT_LENGTH, (*length).into());
                }
                self.upstream(*status, &headers)
            }
            Verb::UpstreamFails(error) => self.upstream_fails(*error),
            Verb::Part(status) => self.part(*status, &fields.headers()?),
            Verb::Decides(want) => expect("decided", self.decided.as_deref(), want),
            Verb::Then(want) => expect("then", self.outcome.as_deref(), want),
            Verb::Asks => fields.check(&self.upstream_head()?),
            Verb::AsksPart => {
                let (stored, _) = self.current()?;
                let ranges = range_headers(stored).unwrap_or_default();
                fields.check(&ranges)
            }
            Verb::Answer(status, content) => {
                let answer = self.answer.as_ref().ok_or("there is no answer yet")?;
                expect("answer", Some(answer.status.as_str()), &status.to_string())?;
                if let Some(want) = content {
                    expect("content", answer.content.as_deref(), want)?;
                }
                fields.check(&answer.headers)
            }
        }
    }

    fn set_policy(&mut self, name: &str, n: u64) -> Result<(), String> {
        match name {
            "reload_min_age_s" => self.policy.reload_min_age_s = n,
            "stale_while_revalidate_s" => self.policy.stale_while_revalidate_s = n,
            "ttl_s" => self.policy.ttl_s = Some(n),
            "negative_ttl_s" => self.policy.negative_ttl_s = Some(n),
            _ => return Err(format!("no policy is called {name}")),
        }
        Ok(())
    }

    fn client(&mut self, method: &str, target: &str, client: HeaderMap) -> Result<(), String> {
        (self.asking, self.outcome, self.answer) = (None, None, None);
        if self.me.in_loop(&client) {
            return self.refuse(StatusCode::LOOP_DETECTED, ProxyError::ProxyLoopDetected);
        }
        let method = Method::from_bytes(method.as_bytes()).map_err(|e| e.to_string())?;
        let uri = target.parse().map_err(|e| format!("{target}: {e}"))?;
        let request = match Request::parse(&method, &uri, &client) {
            Ok(request) => request,
            Err(e) => return self.refuse(e.status(), ProxyError::HttpRequestError),
        };
        let base = key(&self.project, &request.target);
        let (key, selecting) = self.variant(&base, &client);
        let held = self.held.get(&key);
        let run = self.errors.get(&key).copied().unwrap_or_default();
        if held.is_none()
            && let Some(status) = run.negative(self.now)
        {
            self.decided = Some(format!("negative {}", status.as_str()));
            self.answer = Some(own_answer(status));
            return Ok(());
        }
        let held = held.map(|(head, _)| (head, freshness(head, self.now, &self.policy)));
        let held = held.as_ref().map(|(head, fresh)| (*head, fresh));
        let step = next_step(&request, held, &self.policy);
        self.decided = Some(step.to_string());
        self.asking = Some(Asking { client, request, base, key, selecting, step, since: self.now });
        match step {
            Step::Serve(served) => {
                let mut status = CacheStatus::hit();
                if served != Served::Fresh {
                    status = status.with_detail(served.as_str());
                }
                self.serve(status)
            }
            Step::ServeAndRevalidate => self.serve(CacheStatus::hit().with_detail("stale")),
            Step::Refuse(_) => {
                self.answer = Some(own_answer(StatusCode::GATEWAY_TIMEOUT));
                Ok(())
            }
            Step::Fetch | Step::Revalidate { .. } | Step::Pass(_) => Ok(()),
        }
    }

    /// Where the answer for this client stands, and which of its fields chose that.
    fn variant(&self, base: &Key, client: &HeaderMap) -> (Key, Selecting) {
        match self.records.get(base) {
            Some(record) => (record.key(base, client), Selecting::of(record.names(), client)),
            None => (*base, Selecting::default()),
        }
    }

    fn refuse(&mut self, status: StatusCode, error: ProxyError) -> Result<(), String> {
        self.decided = Some(format!("refuse {}", status.as_str()));
        let mut answer = own_answer(status);
        answer.headers.append("proxy-status", proxy_status(&self.me, error, None, None));
        self.answer = Some(answer);
        Ok(())
    }

    fn asking(&self) -> Result<&Asking, String> {
        self.asking.as_ref().ok_or_else(|| "nobody asks".into())
    }

    fn current(&self) -> Result<&(StoredHead, u64), String> {
        self.held.get(&self.asking()?.key).ok_or_else(|| "nothing is held".into())
    }

    /// Answers from what is held.
    fn serve(&mut self, mut status: CacheStatus) -> Result<(), String> {
        let (stored, length) = self.current()?;
        let fresh = freshness(stored, self.now, &self.policy);
        status.ttl_s = Some(fresh.ttl_s());
        let plan = respond(&self.asking()?.request, stored, *length, self.now);
        self.answer = Some(plan.by_cache(stored, &fresh, &self.policy, &self.me, &status).into());
        Ok(())
    }

    /// The head of the request that goes upstream now.
    fn upstream_head(&self) -> Result<HeaderMap, String> {
        let asking = self.asking()?;
        match asking.step {
            Step::Fetch => Ok(self.fill(asking, &HeaderMap::new())),
            Step::Revalidate { .. } | Step::ServeAndRevalidate => {
                let (stored, _) = self.current()?;
                Ok(self.fill(asking, &revalidation_headers(stored)))
            }
            Step::Pass(_) => Ok(pass_request(&asking.client, &self.me)),
            Step::Serve(_) | Step::Refuse(_) => Err("upstream is not asked".into()),
        }
    }

    fn fill(&self, asking: &Asking, extra: &HeaderMap) -> HeaderMap {
        fill_request(&asking.client, &self.me, &asking.selecting, extra)
    }

    fn upstream(&mut self, status: u16, headers: &HeaderMap) -> Result<(), String> {
        self.upstream_head()?;
        let status = StatusCode::from_u16(status).map_err(|e| e.to_string())?;
        let (asked, got) = (self.asking()?.since, self.now);
        let reply = Reply { status, headers, asked, got };
        match meaning(status) {
            Meaning::NotModified if self.current().is_ok() => self.not_modified(&reply),
            Meaning::Good => self.good(&reply),
            _ => self.error(&reply),
        }
    }

    fn forwarded(&self, reply: &Reply<'_>, stored: bool) -> Result<CacheStatus, String> {
        let why = match self.asking()?.step {
            Step::Revalidate { why, .. } => why,
            Step::ServeAndRevalidate => Forward::Stale,
            Step::Pass(_) => Forward::Bypass,
            _ => Forward::UriMiss,
        };
        let fwd_status = Some(reply.status);
        Ok(CacheStatus { stored, fwd_status, ..CacheStatus::forwarded(why) })
    }

    fn not_modified(&mut self, reply: &Reply<'_>) -> Result<(), String> {
        let key = self.asking()?.key;
        let (stored, length) = self.current()?;
        let length = *length;
        let Some(merged) = merge_304(stored, reply) else {
            // Ask again for the whole.
            self.held.remove(&key);
            self.asking.as_mut().ok_or("nobody asks")?.step = Step::Fetch;
            self.outcome = Some("another representation".into());
            return Ok(());
        };
        self.held.insert(key, (merged, length));
        self.errors.remove(&key);
        self.finish("updated", Some(self.forwarded(reply, false)?))
    }

    fn good(&mut self, reply: &Reply<'_>) -> Result<(), String> {
        let key = self.asking()?.key;
        self.errors.remove(&key);
        let asking = self.asking()?;
        let kept = match asking.step {
            Step::Pass(why) => Err(why),
            _ => storable(&asking.request, reply, &self.policy),
        };
        match kept {
            Ok(stored) => self.keep(reply, stored),
            Err(why) => self.pass_on(reply, &format!("not kept {why}")),
        }
    }

    /// Keeps a reply where it belongs.
    fn keep(&mut self, reply: &Reply<'_>, stored: StoredHead) -> Result<(), String> {
        let asking = self.asking()?;
        let (base, sent) = (asking.base, self.upstream_head()?);
        let known = self.records.get(&base);
        let heads = (&asking.client, &sent);
        let place = Place::of(&base, known, heads, reply.headers, self.now);
        let key = match place {
            Err(why) => return self.pass_on(reply, &format!("not kept {why}")),
            Ok(Place::Plain) => {
                self.records.remove(&base);
                base
            }
            Ok(Place::Variant { mut record, key, suits }) => {
                if suits && !record.admit(key, |key| self.held.contains_key(key)) {
                    let why = NoCache::VaryMany;
                    return self.pass_on(reply, &format!("not kept {why}"));
                }
                self.held.remove(&base);
                self.records.insert(base, record);
                if !suits {
                    let (key, selecting) = self.variant(&base, &self.asking()?.client);
                    let asking = self.asking.as_mut().ok_or("nobody asks")?;
                    (asking.key, asking.selecting, asking.step) = (key, selecting, Step::Fetch);
                    self.outcome = Some("asked again".into());
                    return Ok(());
                }
                key
            }
        };
        let Some(length) = reply.complete_length() else {
            return self.pass_on(reply, "gathered");
        };
        self.held.insert(key, (stored, length));
        self.asking.as_mut().ok_or("nobody asks")?.key = key;
        self.finish("kept", Some(self.forwarded(reply, true)?))
    }

    fn error(&mut self, reply: &Reply<'_>) -> Result<(), String> {
        let asking = self.asking()?;
        let key = asking.key;
        if self.may_serve_stale() && meaning(reply.status).prefers_stale() {
            let status = self.forwarded(reply, false)?.with_detail("stale-on-error");
            return self.finish("stale", Some(status));
        }
        match storable(&asking.request, reply, &self.policy) {
            Ok(stored) => {
                let held = self.held.get(&key).map(|(h, _)| h.status);
                if held.is_none_or(|held| may_replace(held, reply.status)) {
                    return self.keep(reply, stored);
                }
                self.pass_on(reply, "not kept held-is-better")
            }
            Err(why) => {
                self.errors.entry(key).or_default().handle_error(
                    self.now,
                    reply.status,
                    &self.policy,
                );
                self.pass_on(reply, &format!("not kept {why}"))
            }
        }
    }

    fn may_serve_stale(&self) -> bool {
        matches!(
            self.asking.as_ref().map(|a| a.step),
            Some(Step::Revalidate { stale_on_error: true, .. } | Step::ServeAndRevalidate)
        )
    }

    fn upstream_fails(&mut self, error: ProxyError) -> Result<(), String> {
        self.upstream_head()?;
        if self.may_serve_stale() {
            let status = CacheStatus::forwarded(Forward::Stale).with_detail("stale-on-error");
            return self.finish("stale", Some(status));
        }
        let mut answer = own_answer(error.status());
        let status = proxy_status(&self.me, error, Some("master1"), None);
        answer.headers.append("proxy-status", status);
        CacheStatus::forwarded(Forward::UriMiss).add(&mut answer.headers, &self.me);
        self.answer = Some(answer);
        self.finish("failed", None)
    }

    fn pass_on(&mut self, reply: &Reply<'_>, outcome: &str) -> Result<(), String> {
        let mut headers = pass_response(reply.headers, &self.me);
        self.forwarded(reply, false)?.add(&mut headers, &self.me);
        self.answer = Some(Answer { status: reply.status, headers, content: None });
        self.finish(outcome, None)
    }

    /// Ends the exchange with upstream; what was answered before (stale) stays answered.
    fn finish(&mut self, outcome: &str, serve: Option<CacheStatus>) -> Result<(), String> {
        self.outcome = Some(outcome.to_owned());
        if let Some(status) = serve
            && self.asking()?.step != Step::ServeAndRevalidate
        {
            self.serve(status)?;
        }
        Ok(())
    }

    /// A reply to a request for further ranges of what is held.
    fn part(&mut self, status: u16, headers: &HeaderMap) -> Result<(), String> {
        let status = StatusCode::from_u16(status).map_err(|e| e.to_string())?;
        let (stored, length) = self.current()?;
        let reply = Reply { status, headers, asked: self.now, got: self.now };
        let same = same_representation(stored, *length, &reply);
        self.outcome = Some(if same { "same" } else { "another representation" }.into());
        Ok(())
    }
}

fn own_answer(status: StatusCode) -> Answer {
    Answer { status, headers: HeaderMap::new(), content: Some("none".into()) }
}

fn expect(what: &str, got: Option<&str>, want: &str) -> Result<(), String> {
    let got = got.unwrap_or("nothing");
    if got == want { Ok(()) } else { Err(format!("{what}: got `{got}`, want `{want}`")) }
}

#[test]
fn conversations() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conversations/http");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&dir)
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no conversations in {}", dir.display());
    let (mut played, mut failures) = (0, Vec::new());
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        for conversation in script::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}")) {
            played += 1;
            if let Err(e) = play(&conversation) {
                failures.push(format!("{name}:{e} ({})", conversation.title));
            }
        }
    }
    assert!(failures.is_empty(), "{} of {played}:\n{}", failures.len(), failures.join("\n"));
}

fn play(conversation: &script::Conversation) -> Result<(), String> {
    let mut edge = Edge::new()?;
    let mut expectations = 0;
    for line in &conversation.lines {
        expectations += usize::from(line.verb.expects());
        edge.play(line).map_err(|e| format!("{}: {e}", line.number))?;
    }
    if expectations == 0 { Err("0: expects nothing".into()) } else { Ok(()) }
}
