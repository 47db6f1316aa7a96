//! Random interleavings of clients, slow readers, aborts, evictions, upstream faults, hedges and
//! masters that ignore ranges, against a model: no block is asked for while it is held or in
//! flight, every byte lands in its place, memory is bounded, and every client ends, served or
//! failed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod world;

use fill::{ClientId, Failure};
use model::Completion;
use proptest::prelude::*;
use world::{Op, World};

fn failures() -> impl Strategy<Value = Failure> {
    prop::sample::select(vec![
        Failure::Connect,
        Failure::FirstByteTimeout,
        Failure::Truncated,
        Failure::Status(503),
        Failure::Changed,
        Failure::Disk,
    ])
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..24u32, 1..24u32, any::<bool>())
            .prop_map(|(from, blocks, slow)| Op::Arrive { from, blocks, slow }),
        1 => any::<usize>().prop_map(Op::Abort),
        3 => (any::<usize>(), 1..6u32).prop_map(|(n, blocks)| Op::Read(n, blocks)),
        6 => any::<usize>().prop_map(Op::Head),
        16 => (any::<usize>(), 1..20u32).prop_map(|(n, m)| Op::Bytes(n, m)),
        2 => (any::<usize>(), failures()).prop_map(|(n, why)| Op::Fault(n, why)),
        1 => (0..24u32).prop_map(Op::Evict),
        2 => (1..200u64).prop_map(Op::Time),
        1 => Just(Op::Popular),
        1 => (0..24u32, 1..4u32).prop_map(|(from, blocks)| Op::Early { from, blocks }),
    ]
}

fn policies() -> impl Strategy<Value = Completion> {
    prop::sample::select(Completion::ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]
    #[test]
    fn every_client_ends_and_no_block_is_asked_twice(
        length in 1..190u64,
        masters in 1..4usize,
        weak in any::<bool>(),
        split in prop::sample::select(vec![2, 4, u32::MAX]),
        completion in policies(),
        ranges in any::<bool>(),
        ops in prop::collection::vec(ops(), 0..160),
    ) {
        let mut world = World::new(length, masters, weak.then_some(0)).splitting(split);
        world = world.completing(completion).answering_ranges(ranges);
        for op in &ops {
            world.step(op);
        }
        world.finish();
    }

    #[test]
    fn without_faults_every_wanted_block_comes_exactly_once(
        length in 1..190u64,
        completion in policies(),
        wants in prop::collection::vec((0..24u32, 1..24u32, any::<bool>()), 1..12),
    ) {
        let mut world = World::new(length, 2, None).completing(completion);
        for (from, blocks, slow) in wants {
            world.step(&Op::Arrive { from, blocks, slow });
            world.step(&Op::Head(0));
            world.step(&Op::Bytes(0, 5));
        }
        world.finish();
        let held: u64 = world.held.iter().map(|b| world.bytes_of(*b)).sum();
        prop_assert_eq!(world.failed, 0);
        prop_assert_eq!(world.received, held);
        if completion == Completion::Complete {
            prop_assert_eq!(held, length);
        }
    }
}

#[test]
fn a_full_download_is_one_request_whoever_joins() {
    let mut world = World::new(80, 2, None).completing(Completion::Demanded);
    world.arrive(0..10);
    world.arrive(3..5);
    world.arrive(0..10);
    world.finish();
    assert_eq!(world.asked, [(0, 80)]);
    assert_eq!(world.served, 3);
}

#[test]
fn what_was_asked_for_before_anything_was_known_is_not_asked_again() {
    let mut world = World::new(160, 1, None).completing(Completion::Demanded);
    world.early(4..6);
    world.early(5..7);
    world.early(19..25);
    world.arrive(0..20);
    assert_eq!(world.asked, [(32, 48), (152, 160), (0, 32)], "one overlapped, one was cut");
    world.early(8..9);
    assert_eq!(world.asked.len(), 3, "there are enough requests");
    // What ends before its time is asked for again like anything else.
    world.fault(0, Failure::Truncated);
    world.finish();
    assert_eq!((world.served, world.failed, world.received), (1, 0, 160));
}

#[test]
fn blocked_blocks_go_first_and_held_ones_are_left_out() {
    let mut world = World::new(80, 2, None).completing(Completion::Demanded);
    world.held.extend([2, 5, 6]);
    world.arrive(0..10);
    assert_eq!(world.asked, [(0, 16)], "one ahead-run at most, and the client is blocked at 0");
    world.arrive(9..10);
    assert_eq!(world.asked, [(0, 16), (72, 80)]);
    world.finish();
    assert_eq!(world.asked, [(0, 16), (72, 80), (24, 40), (56, 72)]);
}

#[test]
fn a_run_nobody_wants_ends_with_its_block() {
    let mut world = World::new(80, 2, None).completing(Completion::Demanded);
    world.arrive(0..10);
    world.head(0);
    world.bytes(0, 3);
    world.abort(0);
    assert_eq!(world.requests.len(), 1, "the begun block is finished");
    world.bytes(0, 5);
    assert_eq!((world.requests.len(), world.held.len()), (0, 1));
    world.arrive(0..10);
    world.finish();
    assert_eq!(world.asked, [(0, 80), (8, 80)]);
}

#[test]
fn a_broken_body_goes_on_at_the_same_byte_with_the_next_master() {
    let mut world = World::new(80, 2, None).completing(Completion::Demanded);
    world.arrive(0..10);
    world.head(0);
    world.bytes(0, 8);
    world.bytes(0, 3);
    world.fault(0, Failure::Truncated);
    assert_eq!(world.asked, [(0, 80), (11, 80)]);
    assert_eq!(world.requests.keys().map(|(_, m)| *m).collect::<Vec<_>>(), [1]);
    world.finish();
    assert_eq!((world.served, world.failed), (1, 0));
}

#[test]
fn attempts_end_and_later_readers_are_not_failed_before_their_time() {
    let mut world = World::new(80, 1, None).completing(Completion::Demanded);
    world.held.extend([0, 1]);
    let blocked = world.arrive(2..4);
    world.fault(0, Failure::Connect);
    assert_eq!(world.failed, 0);
    world.fault(0, Failure::Connect);
    assert_eq!(world.failed, 1, "two attempts");
    assert!(!world.fill.has_client(blocked));
    assert_eq!(world.asked.len(), 2);
    // Reading block 1 still; what comes after is parked, not asked in vain.
    world.fill.handle_want(ClientId(99), 1..4);
    world.settle();
    assert_eq!(world.asked.len(), 2);
    // Blocked there now: asked again, since the master may be back.
    world.fill.handle_want(ClientId(99), 2..4);
    world.settle();
    assert_eq!(world.asked.last(), Some(&(16, 32)));
}

#[test]
fn a_weak_validator_keeps_to_its_master_and_a_changed_one_ends_at_once() {
    let mut world = World::new(80, 3, Some(1)).completing(Completion::Demanded);
    world.arrive(0..2);
    world.fault(0, Failure::Truncated);
    assert_eq!(world.requests.keys().map(|(_, m)| *m).collect::<Vec<_>>(), [1]);
    world.fault(0, Failure::Changed);
    assert_eq!((world.failed, world.asked.len()), (1, 2));

    let mut world = World::new(80, 2, None).completing(Completion::Demanded);
    world.arrive(0..2);
    world.fault(0, Failure::Changed);
    assert_eq!(world.requests.keys().map(|(_, m)| *m).collect::<Vec<_>>(), [1]);
    world.finish();
    assert_eq!(world.served, 1, "the other master still had it");
}

#[test]
fn a_client_far_ahead_gets_its_own_request_and_each_byte_comes_once() {
    let mut world = World::new(160, 1, None).splitting(8).completing(Completion::Demanded);
    world.arrive(0..20);
    world.head(0);
    world.bytes(0, 8);
    world.arrive(5..6);
    assert_eq!(world.asked, [(0, 160)], "near enough to wait for");
    world.arrive(17..19);
    assert_eq!(world.asked, [(0, 160), (136, 152)]);
    world.finish();
    assert_eq!(world.asked, [(0, 160), (136, 152), (152, 160)], "the first one was cut at 136");
    assert_eq!((world.served, world.failed), (3, 0));
}

#[test]
fn what_was_split_off_and_cannot_be_had_comes_with_the_first_answer() {
    let mut world = World::new(160, 1, None).splitting(8).completing(Completion::Demanded);
    world.arrive(0..20);
    world.head(0);
    world.arrive(17..19);
    // The object has changed: new requests are refused, the running answer is still the old one.
    world.fault(1, Failure::Changed);
    world.finish();
    assert_eq!((world.served, world.failed), (2, 0));
    assert_eq!(world.asked.last(), Some(&(152, 160)));
}
