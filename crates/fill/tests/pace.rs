//! How much is brought, and when: the window, completion, hedges, masters without ranges.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod world;

use fill::{Failure, Pace, Reason};
use model::Completion;
use world::{BLOCK, PATIENCE_MS, World};

/// Lets all that upstream may send come in.
fn flow(world: &mut World) {
    for nth in 0..2000 {
        world.head(nth);
        world.bytes(nth, BLOCK);
    }
}

fn demanded(blocks: u64) -> World {
    World::new(blocks * u64::from(BLOCK), 2, None).completing(Completion::Demanded)
}

#[test]
fn a_run_is_never_more_than_a_window_ahead_of_its_fastest_reader() {
    let mut world = demanded(40).windowed(8);
    let slow = world.come(0..40, true);
    flow(&mut world);
    assert_eq!(world.held.len(), 8, "it reads nothing");
    assert!(world.buffers.is_empty(), "and holds no memory");
    let slower = world.come(0..40, true);
    flow(&mut world);
    assert_eq!(world.held.len(), 8);
    world.take(slow, 4);
    flow(&mut world);
    assert_eq!(world.held.len(), 8, "not for every block");
    world.take(slow, 1);
    flow(&mut world);
    assert_eq!(world.held.len(), 13, "less than half of the window was left");
    world.take(slower, 2);
    flow(&mut world);
    assert_eq!(world.held.len(), 13, "the fastest counts");
    world.arrive(0..40);
    flow(&mut world);
    assert_eq!((world.held.len(), world.asked.len()), (40, 1), "still the same answer");
    world.finish();
}

#[test]
fn an_answer_that_was_left_waiting_may_end_without_blame() {
    let mut world = demanded(40).windowed(8);
    let slow = world.come(0..40, true);
    flow(&mut world);
    world.take(slow, 5);
    world.fault(0, Failure::Truncated);
    assert_eq!((world.forgiven, world.failed), (1, 0));
    assert_eq!(world.asked, [(0, 320), (64, 320)], "from that byte");
    world.fault(0, Failure::Truncated);
    assert_eq!((world.forgiven, world.asked.len()), (1, 3), "this one did not wait");
    world.finish();
    assert_eq!((world.served, world.failed), (1, 0));
}

#[test]
fn paused_runs_give_their_places_to_blocked_clients() {
    let mut world = demanded(90).windowed(2);
    for from in [0, 20, 40] {
        world.come(from..from + 20, true);
        flow(&mut world);
    }
    assert_eq!((world.held.len(), world.fill.runs()), (6, 3), "all places are taken");
    for from in [60, 70, 80] {
        world.arrive(from..from + 1);
    }
    flow(&mut world);
    assert_eq!((world.served, world.held.len()), (3, 9));
    world.finish();
    assert_eq!((world.served, world.failed), (6, 0));
    assert_eq!(world.received, 63 * u64::from(BLOCK), "each block once");
}

#[test]
fn completion_begins_with_a_tenth_of_the_blocks_and_not_before() {
    let mut world = World::new(40 * u64::from(BLOCK), 2, None);
    for block in [30, 31, 5] {
        world.arrive(block..block + 1);
        flow(&mut world);
    }
    assert_eq!(world.held.len(), 3);
    world.arrive(5..6);
    assert_eq!((world.held.len(), world.fill.runs()), (3, 0), "the same again is no proof");
    world.arrive(17..18);
    flow(&mut world);
    assert_eq!(world.held.len(), 40);
    assert_eq!(world.received, 40 * u64::from(BLOCK));
    assert_eq!((world.reasons[&Reason::Demand], world.reasons[&Reason::Completion]), (4, 36));
    world.finish();
}

#[test]
fn completion_begins_with_a_second_network_or_at_once_or_never() {
    for (policy, popular, want) in [
        (Completion::Popular, false, 1),
        (Completion::Popular, true, 40),
        (Completion::Complete, false, 40),
        (Completion::Demanded, true, 1),
    ] {
        let mut world = World::new(40 * u64::from(BLOCK), 2, None).completing(policy);
        world.arrive(12..13);
        if popular {
            world.fill.handle_popular();
        }
        flow(&mut world);
        assert_eq!(world.held.len(), want, "{policy} {popular}");
        world.finish();
    }
}

#[test]
fn completion_takes_no_place_and_nobody_waits_for_it() {
    let mut world = World::new(100 * u64::from(BLOCK), 2, None);
    world = world.splitting(16).completing(Completion::Complete);
    world.settle();
    world.spare = false;
    flow(&mut world);
    assert_eq!((world.asked.clone(), world.held.len()), (vec![(0, 80)], 0), "no room to spare");
    for block in [20, 40, 60] {
        world.arrive(block..block + 1);
    }
    assert_eq!(world.fill.runs(), 4, "all of its own");
    flow(&mut world);
    assert_eq!((world.served, world.held.len()), (3, 3));
    world.arrive(1..2);
    flow(&mut world);
    assert_eq!(world.served, 4, "near to the run, and so it brings what is before");
    assert_eq!(world.held.len(), 5);
    world.spare = true;
    world.finish();
    assert_eq!(world.held.len(), 100);
    assert_eq!(world.received, 800);
}

#[test]
fn completion_that_fails_is_not_insisted_on() {
    let mut world = World::new(40 * u64::from(BLOCK), 1, None).completing(Completion::Complete);
    world.settle();
    world.head(0);
    world.fault(0, Failure::Truncated);
    assert!(world.fill.is_idle());
    world.arrive(0..1);
    flow(&mut world);
    assert_eq!((world.served, world.asked.last()), (1, Some(&(0, 8))));
}

#[test]
fn completion_that_is_stuck_in_a_block_gives_its_memory_back() {
    let mut world = World::new(40 * u64::from(BLOCK), 1, None).completing(Completion::Complete);
    world.settle();
    world.head(0);
    let run = world.requests.keys().next().unwrap().0;
    assert!(!world.fill.cut(run, Some(0)), "it holds no memory");
    world.bytes(0, 3);
    assert!(!world.fill.cut(run, Some(0)), "it moves");
    assert!(world.fill.cut(run, Some(3)));
    world.settle();
    assert!(world.fill.is_idle() && world.buffers.is_empty());
}

#[test]
fn a_master_that_lets_a_blocked_client_wait_is_not_alone_for_long() {
    let mut world = demanded(10);
    world.arrive(0..10);
    world.pass_time(PATIENCE_MS - 1);
    assert_eq!(world.hedges, 0);
    world.pass_time(1);
    assert_eq!((world.hedges, world.requests.len()), (1, 2));
    world.pass_time(10 * PATIENCE_MS);
    assert_eq!(world.hedges, 1, "once");
    world.head(1);
    assert_eq!((world.slow.clone(), world.requests.len()), (vec![0], 1), "the loser is dropped");
    world.finish();
    assert_eq!((world.served, world.received), (1, 80));

    // The first answers all the same.
    let mut world = demanded(10);
    world.arrive(0..10);
    world.pass_time(PATIENCE_MS);
    world.head(0);
    assert_eq!((world.slow.len(), world.requests.len()), (0, 1));
    world.finish();

    // One of two fails: the other is waited for. Both fail: others are asked.
    for first in [0, 1] {
        let mut world = World::new(80, 3, None);
        world.arrive(0..10);
        world.pass_time(PATIENCE_MS);
        world.fault(first, Failure::FirstByteTimeout);
        assert_eq!((world.asked.len(), world.requests.len()), (1, 1));
        world.fault(0, Failure::Connect);
        let whom: Vec<_> = world.requests.keys().map(|(_, master)| *master).collect();
        assert_eq!((world.asked.len(), whom), (2, vec![2]));
        world.finish();
        assert_eq!((world.served, world.failed), (1, 0));
    }
}

#[test]
fn nobody_else_is_asked_for_those_who_do_not_wait_or_must_not() {
    let mut world = World::new(400, 2, None).completing(Completion::Complete);
    world.settle();
    world.pass_time(10 * PATIENCE_MS);
    assert_eq!(world.hedges, 0, "completion waits");
    world.arrive(49..50);
    world.pass_time(0);
    assert_eq!(world.requests.len(), 2, "its own");

    let mut world = World::new(80, 2, Some(0));
    world.arrive(0..10);
    world.pass_time(100 * PATIENCE_MS);
    assert_eq!(world.hedges, 0, "no other master has the same");
}

#[test]
fn what_a_master_without_ranges_sends_before_is_stored_too() {
    let mut world = demanded(20).holding([3, 4]).answering_ranges(false);
    world.arrive(10..11);
    flow(&mut world);
    assert_eq!(world.held.iter().copied().collect::<Vec<_>>(), (0..11).collect::<Vec<_>>());
    assert!(!world.fill.has_ranges());
    assert_eq!((world.asked.clone(), world.skipped), (vec![(80, 88)], 16));
    assert_eq!((world.fill.runs(), world.received), (0, 88), "and what comes after is left");
    world.arrive(2..9);
    assert_eq!(world.asked.len(), 1, "held");
    world.arrive(12..14);
    world.come(11..20, true);
    flow(&mut world);
    assert_eq!(world.asked, [(80, 88), (0, 160)], "known now: one answer for both");
    world.finish();
    assert_eq!((world.held.len(), world.served), (20, 4));
}

#[test]
fn a_turn_is_given_block_by_block() {
    let mut world = demanded(40).windowed(1);
    let slow = world.come(0..2, true);
    world.head(0);
    let run = world.requests.keys().next().unwrap().0;
    assert_eq!(world.fill.turn(run), Some(Pace::Wanted));
    world.bytes(0, 3);
    assert_eq!(world.fill.turn(run), Some(Pace::Wanted), "what is begun is finished");
    world.bytes(0, 5);
    assert_eq!(world.fill.turn(run), Some(Pace::Paused));
    assert!(!world.fill.cut(run, None), "somebody wants it");
    assert!(world.fill.cut_paused(run) && !world.fill.cut_paused(run));
    world.settle();
    assert_eq!((world.fill.turn(run), world.fill.runs()), (None, 0));
    world.take(slow, 1);
    assert_eq!(world.asked, [(0, 16), (8, 16)], "a new one");
    world.finish();
}

#[test]
fn a_run_is_cut_only_when_nobody_wants_it() {
    let mut world = demanded(3);
    world.come(0..3, true);
    let run = world.requests.keys().next().unwrap().0;
    assert!(world.fill.is_wanted(run) && !world.fill.cut(run, None));
    world.abort(0);
    assert!(!world.fill.is_wanted(run) && world.fill.cut(run, None), "before its head");
    world.settle();
    assert!(world.fill.is_idle());

    world.come(0..3, true);
    world.head(0);
    world.bytes(0, 4);
    let run = world.requests.keys().next().unwrap().0;
    world.abort(0);
    world.come(1..3, true);
    assert!(world.fill.is_wanted(run) && !world.fill.cut(run, None), "another is near");
    world.abort(0);
    assert!(world.fill.cut(run, None), "inside a block");
    world.settle();
    assert!(world.fill.is_idle() && world.buffers.is_empty());
}
