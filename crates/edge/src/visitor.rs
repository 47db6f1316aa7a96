//! A client as it is known as long as its connection lasts.

use model::{Asn, CountryCode};
use serve::Client;

use crate::state::Edge;

/// A client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Visitor {
    pub(crate) client: Client,
    /// Its origin AS, when a database knows it.
    pub(crate) asn: Option<Asn>,
    /// Its country, likewise.
    pub(crate) country: Option<CountryCode>,
}

impl Visitor {
    /// One that comes now: what the databases say of it.
    pub(crate) fn of(client: Client, edge: &Edge) -> Self {
        let location = edge.steering.view().map(|view| view.locator.locate(client.address.ip()));
        let asn = location.as_ref().and_then(|location| location.asn);
        Self { client, asn, country: location.and_then(|location| location.country) }
    }
}
