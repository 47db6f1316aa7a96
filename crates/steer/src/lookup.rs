//! What is known of an address: for people, and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use locate::{Heard, Locator};
use model::{Asn, Location, Name};
use nodemap::AdminMap;
use serde::Serialize;

use crate::explain::DecidedBy;

/// Version of the JSON document.
const FORMAT: u32 = 1;

/// Everything that is known of an address.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lookup {
    /// Version of this document.
    pub format: u32,
    /// The address.
    pub address: IpAddr,
    /// Where it is.
    pub location: Location,
    /// Name of its AS.
    pub as_name: Option<String>,
    /// Its route in each view that has one; the first is the one that the location is by.
    pub routes: Vec<Heard>,
    /// The names of the ASes on the way, as far as the database has them.
    pub as_names: BTreeMap<u32, String>,
    /// By steering map: the entry that decides for it.
    pub maps: BTreeMap<Name, DecidedBy>,
}

impl Lookup {
    /// What `locator` knows of `address`, and which entries of the maps of `map` decide for it at
    /// `wall_ms` (unix milliseconds).
    pub fn new(locator: &Locator, map: Option<&AdminMap>, address: IpAddr, wall_ms: u64) -> Self {
        let location = locator.locate(address);
        let routes = locator.routes().find(address);
        let paths = routes.iter().map(|heard| &heard.attributes.as_path);
        let on_the_way = paths.flat_map(|path| path.hops().flatten());
        let named = |asn: Asn| Some((asn.get(), locator.as_name(asn)?.to_owned()));
        let maps = map.into_iter().flat_map(|map| &map.maps).map(|(name, map)| {
            let rule = map.override_at(address, wall_ms);
            (name.clone(), DecidedBy::by(map, rule, address, (&location, locator)))
        });
        Self {
            format: FORMAT,
            address,
            as_name: location.asn.and_then(|asn| locator.as_name(asn)).map(str::to_owned),
            as_names: on_the_way.filter_map(named).collect(),
            maps: maps.collect(),
            location,
            routes,
        }
    }
}

impl fmt::Display for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "unknown".into());
        let Location { prefix, asn, country, continent } = &self.location;
        writeln!(f, "address    {}", self.address)?;
        writeln!(f, "prefix     {prefix}")?;
        writeln!(f, "country    {}", or_unknown(country.map(|c| c.to_string())))?;
        writeln!(f, "continent  {}", or_unknown(continent.map(|c| c.to_string())))?;
        let name = self.as_name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
        writeln!(f, "network    {}", or_unknown(asn.map(|asn| format!("{asn}{name}"))))?;
        self.routes.iter().try_for_each(|heard| self.write_route(f, heard))?;
        self.maps.iter().try_for_each(|(map, by)| writeln!(f, "map        {map}: {by}"))
    }
}

impl Lookup {
    fn write_route(&self, f: &mut fmt::Formatter<'_>, heard: &Heard) -> fmt::Result {
        writeln!(f, "route      {heard}")?;
        let attributes = &heard.attributes;
        if attributes.med.is_some() || attributes.local_pref.is_some() {
            let number = |what, n: Option<u32>| n.map(|n| format!(", {what} {n}"));
            let med = number("MED", attributes.med).unwrap_or_default();
            let local_pref = number("local preference", attributes.local_pref).unwrap_or_default();
            writeln!(f, "           origin {:?}{med}{local_pref}", attributes.origin)?;
        }
        for asn in attributes.as_path.hops().flatten() {
            let name = self.as_names.get(&asn.get()).map_or("", String::as_str);
            writeln!(f, "           {}", format!("{asn} {name}").trim_end())?;
        }
        Ok(())
    }
}
