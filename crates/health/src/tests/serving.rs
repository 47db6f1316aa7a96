//! The role as a whole: nodes that die and return, maps that are edited, restarts, readers.

use std::fs;

use health_proto::Question;
use health_proto::probe::{Expect, HttpQuestion, Method, Scheme};
use health_proto::setup::{Check, Timing};
use http::StatusCode;
use model::{Family, State};
use nodemap::NodeMap;
use nodemap::signature::TrustedKeys;
use rt::clock;
use rt::follow::{self, FollowParams, Source};
use rt::metrics::health as metric;

use super::fake::{Mood, Node};
use super::{Home, PATIENCE, maps_of, of};
use crate::{Error, Health};

const ONE: &[(&str, &str)] = &[("a", "192.0.2.1")];
const TWO: &[(&str, &str)] = &[("a", "192.0.2.1"), ("b", "192.0.2.2")];

#[tokio::test]
async fn a_node_dies_in_many_ways_and_returns_each_time() {
    let (mut a, b) = (Node::new(Mood::well()).await, Node::new(Mood::well()).await);
    let home = Home::new(&maps_of(TWO)).with("192.0.2.1", &a).with("192.0.2.2", &b);
    let running = home.start().await;
    running.node_is("b", State::Up).await;
    let deaths = [
        (None, "connect refused"),
        (Some(Mood::Hangs(Vec::new())), "no answer in 300 ms"),
        (Some(Mood::says("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n")), "status 503"),
        (Some(Mood::says("\0\0\0\0\r\n\r\n")), "answer is not HTTP"),
    ];
    for (mood, reason) in deaths {
        let up = running.node_is("a", State::Up).await;
        assert!(up.reason.starts_with("status 200 in "), "{}", up.reason);
        match mood {
            Some(mood) => a.feels(mood).await,
            None => a.refuses().await,
        }
        let down = running.node_is("a", State::Down).await;
        assert_eq!(down.reason, reason);
        assert!(down.since_ms >= up.since_ms);
        a.feels(Mood::well()).await;
    }
    running.node_is("a", State::Up).await;

    let events = fs::read_to_string(home.dir.path().join("state/events.jsonl")).unwrap();
    assert!(events.contains("\"to\":\"down\",\"reason\":\"status 503\""), "{events}");

    let map = running.map().await;
    assert_eq!(map.publisher, "hc");
    let kept = NodeMap::parse(&fs::read(home.state_file()).unwrap()).unwrap();
    assert!(kept.generation >= map.generation);
    let metrics = &running.context.metrics;
    assert!(metrics.counter(&metric::PROBES, &["refused"]).get() >= 2);
    assert!(metrics.counter(&metric::PROBES, &["passed"]).get() >= 2);
    assert_eq!(metrics.gauge(&metric::NODES, &["v6", "up"]).get(), 0);
    running.stop().await;
}

#[tokio::test]
async fn an_edit_is_published_and_a_faulty_one_is_shown_and_changes_nothing() {
    let node = Node::new(Mood::well()).await;
    let home = Home::new(&maps_of(ONE)).with("192.0.2.1", &node).with("192.0.2.2", &node);
    let running = home.start().await;
    running.node_is("a", State::Up).await;

    home.write(&maps_of(TWO));
    let map = running.map_where("b in the map", |m| m.map.nodes.len() == 2).await;
    assert_eq!(of(&map, "a").state, State::Up);
    running.node_is("b", State::Up).await;

    home.write(&maps_of(ONE).replace("site = \"here\"", "site = \"nowhere\"\ncolour = \"red\""));
    let findings =
        |status: &serde_json::Value| status["maps"]["findings"].as_array().map_or(0, Vec::len);
    running.status_where("two findings", |status| findings(status) == 2).await;
    assert_eq!(running.map().await.map.nodes.len(), 2);
    assert_eq!(running.context.metrics.gauge(&metric::MAPS_FINDINGS, &[]).get(), 2);

    home.write(&maps_of(ONE));
    let map = running.map_where("b gone", |m| m.map.nodes.len() == 1).await;
    assert!(!map.states.contains_key("b"));
    running.status_where("no findings", |status| findings(status) == 0).await;
    running.stop().await;
}

/// S3: an edit that moves too many waits for a person's word, over a restart too, and that word is for
/// nothing else.
#[tokio::test]
async fn an_edit_that_moves_many_waits_for_a_word() {
    let node = Node::new(Mood::well()).await;
    let home = Home::new(&maps_of(TWO)).with("192.0.2.1", &node).with("192.0.2.2", &node);
    let weights = |a: u32, b: u32| {
        let text = maps_of(TWO);
        assert!(text.contains("a = 1, b = 1"));
        text.replace("a = 1, b = 1", &format!("a = {a}, b = {b}"))
    };
    let held =
        |status: &serde_json::Value| status["maps"]["held"]["id"].as_str().map(str::to_owned);
    let weight = |map: &NodeMap, node: &str| {
        map.map
            .pools
            .values()
            .next()
            .unwrap()
            .iter()
            .find(|(name, _)| name.as_str() == node)
            .map_or(0, |(_, weight)| *weight)
    };
    let running = home.start().await;
    running.node_is("a", State::Up).await;
    running.node_is("b", State::Up).await;
    let confirm = async |running: &super::Running, id: &str| {
        let body = format!("{{\"id\": \"{id}\"}}");
        running.context.status.act("/maps/confirm", body.into()).await.unwrap().0
    };

    // From a half to nine tenths: 40 % move, which is allowed.
    home.write(&weights(9, 1));
    running.map_where("most to a", |map| weight(map, "a") == 9).await;
    // From nine tenths to one: 80 %, which is not.
    home.write(&weights(1, 9));
    running.status_where("held", |status| held(status).is_some()).await;
    let status = running.status().await;
    assert_eq!(status["maps"]["held"]["percent"], 80);
    assert_eq!(status["alarms"][0]["alarm"], "move-refused", "{status}");
    assert_eq!(running.context.metrics.gauge(&metric::MAPS_HELD, &[]).get(), 80);
    assert_eq!(weight(&running.map().await, "a"), 9);
    let first = held(&status).unwrap();

    // Another edit is another one: it is not confirmed by the word for the first.
    home.write(&weights(1, 19));
    running.status_where("another", |s| held(s).is_some_and(|id| id != first)).await;
    assert_eq!(confirm(&running, &first).await, StatusCode::CONFLICT);
    // What cannot be read is not what waited.
    home.write("");
    running.status_where("nothing waits", |status| held(status).is_none()).await;
    home.write(&weights(1, 9));
    running.status_where("held", |status| held(status).is_some_and(|id| id == first)).await;
    // The old maps again: nothing waits.
    home.write(&weights(9, 1));
    running.status_where("nothing waits", |status| held(status).is_none()).await;
    assert!(running.status().await["alarms"].as_array().is_none_or(Vec::is_empty));

    // A drain moves all that there is and is an order of a person, with or without it being undone.
    let drained = weights(9, 1).replacen("site = \"here\"", "site = \"here\"\ndrain = \"disk\"", 1);
    home.write(&drained);
    running.node_is("a", State::Drained).await;
    home.write(&weights(9, 1));
    running.node_is("a", State::Up).await;

    // It waits over a restart, also where the edit is made while nobody looks.
    running.stop().await;
    home.write(&weights(1, 9));
    let running = home.start().await;
    assert_eq!(held(&running.status().await), Some(first.clone()));
    assert_eq!(weight(&running.map().await, "a"), 9);
    assert_eq!(confirm(&running, &first).await, StatusCode::OK);
    running.map_where("most to b", |map| weight(map, "b") == 9).await;
    assert!(held(&running.status().await).is_none());
    assert_eq!(confirm(&running, &first).await, StatusCode::CONFLICT);
    running.stop().await;
}

#[tokio::test]
async fn a_maps_file_emptied_for_a_while_takes_nothing_off_the_air() {
    let node = Node::new(Mood::well()).await;
    let home = Home::new(&maps_of(ONE)).with("192.0.2.1", &node);
    let running = home.start().await;
    running.node_is("a", State::Up).await;
    let findings =
        |status: &serde_json::Value| status["maps"]["findings"].as_array().unwrap().len();
    let before = running.map().await;
    home.write("");
    running.status_where("no node, no zone, no project", |status| findings(status) == 3).await;
    assert_eq!(running.map().await.map, before.map);
    home.write(&maps_of(ONE));
    running.status_where("no findings", |status| findings(status) == 0).await;
    assert_eq!(running.map().await.map, before.map);
    running.stop().await;
}

#[tokio::test]
async fn a_generation_from_the_far_future_is_not_gone_on_from() {
    let node = Node::new(Mood::well()).await;
    let home = Home::new(&maps_of(ONE)).with("192.0.2.1", &node);
    for far in [u64::MAX, u64::MAX - 1, clock::now().wall_ms + 2 * follow::AHEAD_MS_MAX] {
        let running = home.start().await;
        let mut last = running.map().await;
        running.stop().await;
        last.generation = far;
        fs::write(home.state_file(), last.to_json()).unwrap();
        let running = home.start().await;
        running.node_is("a", State::Up).await;
        let generation = running.map().await.generation;
        assert!(generation <= clock::now().wall_ms + follow::AHEAD_MS_MAX, "{generation}");
        running.stop().await;
        let kept = NodeMap::parse(&fs::read(home.state_file()).unwrap()).unwrap();
        assert!(kept.generation >= generation && kept.generation < far, "{}", kept.generation);
    }
}

#[tokio::test]
async fn a_drained_node_is_out_with_its_reason_and_probed_on() {
    let (mut a, b) = (Node::new(Mood::well()).await, Node::new(Mood::well()).await);
    let home = Home::new(&maps_of(TWO)).with("192.0.2.1", &a).with("192.0.2.2", &b);
    let running = home.start().await;
    running.node_is("a", State::Up).await;
    running.node_is("b", State::Up).await;
    home.write(&maps_of(TWO).replace("[node.b]", "drain = \"new disks\"\n[node.b]"));
    let drained = running.node_is("a", State::Drained).await;
    assert_eq!(drained.reason, "new disks");
    assert_eq!(running.context.metrics.gauge(&metric::NODES, &["v4", "drained"]).get(), 1);
    a.refuses().await;
    running
        .status_where("a probed as down", |status| {
            let family = &status["nodes"]["a"]["v4"];
            family["state"] == "drained" && family["addresses"][0]["state"] == "down"
        })
        .await;
    assert_eq!(*of(&running.map().await, "a"), drained);
    home.write(&maps_of(TWO));
    assert_eq!(running.node_is("a", State::Down).await.reason, "connect refused");
    running.stop().await;
}

#[tokio::test]
async fn a_restart_goes_on_with_the_last_states_above_the_last_generation() {
    let (a, b) = (Node::new(Mood::well()).await, Node::new(Mood::says("nonsense\r\n\r\n")).await);
    let home = Home::new(&maps_of(TWO)).with("192.0.2.1", &a).with("192.0.2.2", &b);
    let running = home.start().await;
    running.node_is("a", State::Up).await;
    let before = running.node_is("b", State::Down).await;
    running.stop().await;
    let last = NodeMap::parse(&fs::read(home.state_file()).unwrap()).unwrap();

    // Nobody runs the loop yet: this is the map of the start itself.
    let health = Health::bind(home.params(), home.context()).await.unwrap();
    let first = health.desk.subscribe().borrow().clone();
    let first = NodeMap::parse(&first.document).unwrap();
    assert!(first.generation > last.generation);
    assert_eq!(of(&first, "b").state, State::Down);
    assert_eq!(of(&first, "b").reason, "unconfirmed: answer is not HTTP");
    assert_eq!(of(&first, "b").since_ms, before.since_ms);
    assert!(of(&first, "a").reason.starts_with("unconfirmed: status 200 in "));
    drop(health);

    // A faulty edit must not keep a checker from restarting.
    home.write("[node.a]\n");
    let running = home.start().await;
    running.status_where("findings", |s| s["maps"]["findings"][0].is_string()).await;
    let map = running.map_where("confirmed", |m| of(m, "b").reason == "answer is not HTTP").await;
    assert_eq!(map.map.nodes.len(), 2);
    running.stop().await;

    // Without an earlier map there is nothing to go on with: all findings at once.
    fs::remove_file(home.state_file()).unwrap();
    let error = Health::bind(home.params(), home.context()).await.unwrap_err();
    assert!(matches!(&error, Error::Maps(findings) if findings.len() >= 2), "{error}");
    assert!(error.to_string().contains("all.toml:1: node.a"), "{error}");
}

#[tokio::test]
async fn readers_poll_wait_and_overtake() {
    let mut node = Node::new(Mood::well()).await;
    let home = Home::new(&maps_of(ONE)).with("192.0.2.1", &node);
    let running = home.start().await;
    running.node_is("a", State::Up).await;

    let whole = running.get("/node-map", &[]).await;
    let tag = whole.headers["etag"].to_str().unwrap().to_owned();
    let map = NodeMap::parse(&whole.body).unwrap();
    assert_eq!(tag, format!("\"{}\"", map.generation));
    assert_eq!(whole.headers["content-type"], "application/json");
    assert_eq!(whole.body.last(), Some(&b'\n'));

    let same = running.get("/node-map", &[("if-none-match", &tag)]).await;
    assert_eq!((same.status, same.body.len()), (StatusCode::NOT_MODIFIED, 0));
    assert_eq!(same.headers["etag"], tag.as_str());

    // Time to wait is no wait when there is something new.
    let at_once = running.get("/node-map?wait=60", &[("if-none-match", "\"1\"")]).await;
    assert_eq!(at_once.status, StatusCode::OK);

    // A death wakes the poll that waits.
    let headers = [("if-none-match", tag.as_str())];
    let waiting = running.get("/node-map?wait=60", &headers);
    let (woken, ()) = tokio::join!(waiting, node.refuses());
    let woken = NodeMap::parse(&woken.body).unwrap();
    assert_eq!(of(&woken, "a").state, State::Down);

    // A reader that is ahead gets a map above its own in the same poll.
    let ahead = woken.generation + 1_000_000;
    let headers = [("cacheboy-reader", "edge-1"), ("cacheboy-generation", &ahead.to_string())];
    let overtaken = running.get("/node-map", &headers).await;
    assert_eq!(NodeMap::parse(&overtaken.body).unwrap().generation, ahead + 1);
    let status = running.status().await;
    assert_eq!(status["readers"]["edge-1"]["generation"], ahead);
    assert_eq!(status["generation"], ahead + 1);

    // A bad name is nobody, a mad generation moves nothing.
    let mad = u64::MAX.to_string();
    running.get("/node-map", &[("cacheboy-reader", "edge-1"), ("cacheboy-generation", &mad)]).await;
    running.get("/node-map", &[("cacheboy-reader", "É"), ("cacheboy-generation", "1")]).await;
    let status = running.status().await;
    assert_eq!(status["readers"].as_object().unwrap().len(), 1);
    assert_eq!(status["readers"]["edge-1"]["ahead"], true);
    assert_eq!(running.map().await.generation, ahead + 1);

    assert_eq!(running.get("/other", &[]).await.status, StatusCode::NOT_FOUND);
    running.stop().await;
}

#[tokio::test]
async fn a_follower_has_a_death_by_its_waiting_poll() {
    let mut node = Node::new(Mood::well()).await;
    let home = Home::new(&maps_of(ONE)).with("192.0.2.1", &node);
    let running = home.start().await;
    let reader = Home::new("");
    let context = super::context(reader.dir.path());
    let url = format!("http://{}/node-map", running.address).parse().unwrap();
    let params = FollowParams { node_map: vec![Source::Http(url)], keys: TrustedKeys::default() };
    let mut following = follow::start(params, &context);
    for (wanted, kill) in [(State::Up, true), (State::Down, false)] {
        let is = |map: &Option<std::sync::Arc<NodeMap>>| {
            map.as_ref().is_some_and(|map| of(map, "a").state == wanted)
        };
        tokio::time::timeout(PATIENCE, following.wait_for(is)).await.unwrap().unwrap();
        if kill {
            node.refuses().await;
        }
    }
    context.shutdown.end_soon();
    running.stop().await;
}

#[tokio::test]
async fn status_shows_every_address_with_its_probes() {
    let node = Node::new(Mood::well()).await;
    let home = Home::new(&maps_of(ONE)).with("192.0.2.1", &node);
    let running = home.start().await;
    let up = running.node_is("a", State::Up).await;
    let status = running.status().await;
    assert_eq!(status["format"], 1);
    assert_eq!(status["publisher"], "hc");
    assert_eq!(status["holding"], false);
    let family = &status["nodes"]["a"]["v4"];
    assert_eq!(family["state"], "up");
    assert_eq!(family["reason"], up.reason);
    assert_eq!(family["since_ms"], up.since_ms);
    let address = &family["addresses"][0];
    assert_eq!(address["address"], "192.0.2.1");
    assert!(address["passes"].as_u64().unwrap() >= 1);
    assert!(address["last_probe_age_ms"].is_u64());
    assert!(address["next_probe_ms"].as_u64().unwrap() <= 300);
    assert_eq!(running.context.status.show()["health"]["publisher"], "hc");
    running.stop().await;
}

#[tokio::test]
async fn a_stop_ends_the_polls_that_wait() {
    let node = Node::new(Mood::well()).await;
    let home = Home::new(&maps_of(ONE)).with("192.0.2.1", &node);
    let running = home.start().await;
    running.node_is("a", State::Up).await;
    let map = running.map().await;
    let tag = format!("\"{}\"", map.generation);
    let address = running.address;
    let waiting = tokio::spawn(async move {
        let headers = [
            ("if-none-match", tag.as_str()),
            ("cacheboy-reader", "edge-1"),
            ("cacheboy-generation", "1"),
        ];
        super::get(address, "/node-map?wait=60", &headers).await
    });
    running.status_where("a reader", |s| s["readers"]["edge-1"].is_object()).await;
    running.stop().await;
    assert_eq!(waiting.await.unwrap().status, StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn a_state_directory_that_cannot_be_written_stops_nothing() {
    let mut node = Node::new(Mood::well()).await;
    let home = Home::new(&maps_of(ONE)).with("192.0.2.1", &node);
    fs::create_dir_all(home.state_file().join("in-the-way")).unwrap();
    let running = home.start().await;
    running.node_is("a", State::Up).await;
    node.refuses().await;
    running.node_is("a", State::Down).await;
    assert!(running.context.metrics.counter(&metric::STATE_WRITE_ERRORS, &[]).get() >= 1);
    assert!(running.map().await.states["a"].get(Family::V6).is_none());
    running.stop().await;
}

#[tokio::test]
async fn going_back_holds_over_restarts_until_the_maps_are_edited() {
    let node = Node::new(Mood::well()).await;
    let home = Home::new(&maps_of(ONE)).with("192.0.2.1", &node).with("192.0.2.2", &node);
    let running = home.start().await;
    running.node_is("a", State::Up).await;
    let nodes = |count: usize| move |map: &NodeMap| map.map.nodes.len() == count;
    let old = running.map().await.generation;
    home.write(&maps_of(TWO));
    running.map_where("two nodes", nodes(2)).await;
    let state_dir = home.dir.path().join("state");
    let first = crate::history::kept(&state_dir).unwrap().remove(0);
    assert!(first.edited && first.generation <= old);

    let post = |body: &'static str| running.context.status.act("/rollback", body.into());
    assert_eq!(post("{}").await.unwrap().0, StatusCode::BAD_REQUEST);
    assert_eq!(post("{\"generation\":1}").await.unwrap().0, StatusCode::CONFLICT);
    let order = format!("{{\"generation\":{}}}", first.generation);
    let done = running.context.status.act("/rollback", order.into()).await.unwrap();
    assert_eq!((done.0, &done.1["rolled_back_to"]), (StatusCode::OK, &first.generation.into()));
    let back = running.map_where("one node", nodes(1)).await;
    assert!(back.generation > old);
    let shown = |status: &serde_json::Value| status["maps"]["rolled_back_to"].as_u64();
    assert_eq!(shown(&running.status().await), Some(first.generation));
    running.stop().await;

    let running = home.start().await;
    assert_eq!(running.map().await.map.nodes.len(), 1);
    assert_eq!(shown(&running.status().await), Some(first.generation));
    home.write(&maps_of(TWO).replace("a = 1", "a = 2"));
    running.map_where("two nodes", nodes(2)).await;
    assert_eq!(shown(&running.status().await), None);
    running.stop().await;
}

#[tokio::test]
async fn a_node_with_wrong_bytes_is_unfit_for_that_project_and_up() {
    let node = Node::new(Mood::well()).await;
    let home = Home::new(&maps_of(ONE)).with("192.0.2.1", &node);
    let question = HttpQuestion {
        scheme: Scheme::Http,
        method: Method::Get,
        host: "x.example".into(),
        sni: None,
        path: "/canary".into(),
        range: None,
        hash: false,
        expect: Expect { length: Some(4), ..Expect::default() },
    };
    let timing = Timing { interval_ms: 300, timeout_ms: 300, ..Timing::default() };
    let (name, question) = ("c".parse().unwrap(), Question::Http(question));
    let check = Check { name, timing, port: 80, question };
    let mut params = home.params();
    params.setup.checks.insert("x".parse().unwrap(), vec![check]);
    let running = home.start_with(params).await;
    let unfit = |map: &NodeMap| map.unfit.get("x")?.get("a")?.get(Family::V4).cloned();
    let map = running.map_where("unfit", |map| unfit(map).is_some()).await;
    let state = unfit(&map).unwrap();
    assert_eq!(state.state, State::Down);
    assert!(state.reason.contains("3 bytes, not 4"), "{}", state.reason);
    assert_eq!(running.node_is("a", State::Up).await.state, State::Up);
    running.stop().await;
}
