//! A client as it is known as long as its connection lasts.

use model::{Asn, CountryCode};
use serve::Client;

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
    /// One of whom only the address is known.
    pub(crate) fn of(client: Client) -> Self {
        Self { client, asn: None, country: None }
    }
}
