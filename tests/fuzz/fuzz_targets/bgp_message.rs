//! Any bytes as BGP messages, as the body of each kind, as a document of routes and as an MRT file: read or
//! refused. What an UPDATE announces and withdraws goes through a table, which decides.
#![no_main]

use bgp_proto::feed::{Feed, Followed};
use bgp_proto::mrt::Records;
use bgp_proto::refresh::Refresh;
use bgp_proto::{Families, Notification, Open, Rib, Rules, Update, frame};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut rib = Rib::new([1, 2]);
    let view = rib.add_view("fuzz").unwrap();
    let peer = rib.add_peer(view, false).unwrap();
    let mut update = |body: &[u8], rib: &mut Rib| {
        for (four_octet_as, internal) in [(true, false), (false, true)] {
            let families = Families::ALL;
            let rules = Rules { four_octet_as, internal, families, extended_next_hop: internal };
            if let Ok(update) = Update::parse(body, &rules) {
                rib.apply(peer, update);
            }
        }
    };
    update(bytes, &mut rib);
    let _ = (Open::parse(bytes), Refresh::parse(bytes), Notification::parse(bytes));
    let mut rest = bytes;
    while let Ok(Some(message)) = frame::first(rest, true) {
        update(message.body, &mut rib);
        rest = &rest[message.length..];
    }
    rib.commit();
    for (prefix, _) in rib.export(view) {
        assert!(rib.best(view, prefix).is_some());
    }
    if let Ok(feed) = Feed::read(bytes) {
        let _ = Followed::default().apply(feed);
    }
    let (mut records, mut events) = (Records::new(bytes), Vec::new());
    while let Ok(true) = records.next(&mut events) {}
});
