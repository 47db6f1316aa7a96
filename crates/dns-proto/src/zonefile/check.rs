//! What must hold between the records of one zone file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use nodemap::Finding;

use super::{FileSet, finding};
use crate::answer::ALIASES_MAX;
use crate::wire::{ancestry, rtype, text_of};

/// Most bytes that the records of one name and type may have, so that they fit an answer.
const SET_BYTES_MAX: usize = 60_000;

/// Adds everything that does not hold.
pub(super) fn check(path: &Path, apex: &[u8], sets: &[FileSet], findings: &mut Vec<Finding>) {
    if sets.is_empty() {
        let remedy = "put the file back, or take it away to give the zone up".to_owned();
        findings.push(finding(path, 0, "", "has no records", remedy));
        return;
    }
    let mut names: BTreeMap<&[u8], BTreeSet<u16>> = BTreeMap::new();
    for set in sets {
        names.entry(&set.owner).or_default().insert(set.set.rtype);
    }
    let mut checking = Checking { path, apex, sets, names, findings };
    checking.apex();
    checking.aliases();
    checking.delegations();
    checking.targets();
    checking.sizes();
}

struct Checking<'a> {
    path: &'a Path,
    apex: &'a [u8],
    sets: &'a [FileSet],
    /// The types of each name.
    names: BTreeMap<&'a [u8], BTreeSet<u16>>,
    findings: &'a mut Vec<Finding>,
}

impl<'a> Checking<'a> {
    fn refuse(&mut self, set: &FileSet, problem: &str, remedy: &str) {
        let key = format!("{} {}", text_of(&set.owner), rtype::word(set.set.rtype));
        self.findings.push(finding(self.path, set.line, &key, problem, remedy.to_owned()));
    }

    fn of_type(&self, rtype: u16) -> impl Iterator<Item = &'a FileSet> + use<'a> {
        self.sets.iter().filter(move |set| set.set.rtype == rtype)
    }

    fn has(&self, name: &[u8], rtype: u16) -> bool {
        self.names.get(name).is_some_and(|types| types.contains(&rtype))
    }

    fn apex(&mut self) {
        for soa in self.of_type(rtype::SOA) {
            if *soa.owner != *self.apex {
                self.refuse(soa, "does not stand at the top of the zone", "give it the name @");
            } else if soa.set.count() > 1 {
                self.refuse(soa, "is there twice", "keep one: a zone has one SOA record");
            } else if !self.has(self.apex, rtype::NS) {
                let remedy = "add the NS records of the zone at @";
                self.refuse(soa, "has no name servers beside it", remedy);
            }
        }
    }

    fn aliases(&mut self) {
        for alias in self.of_type(rtype::CNAME) {
            if *alias.owner == *self.apex {
                let remedy = "write A and AAAA records, or steer the name in the maps";
                self.refuse(alias, "stands at the top of the zone", remedy);
            } else if self.names.get(&*alias.owner).is_some_and(|types| types.len() > 1) {
                let remedy = "take out either it or the other records of the name (RFC 1034)";
                self.refuse(alias, "has other records beside it", remedy);
            } else if alias.set.count() > 1 {
                self.refuse(alias, "is there twice", "keep one: a name has one canonical name");
            } else if !self.ends(alias) {
                let problem = format!("leads in a circle, or over more than {ALIASES_MAX} aliases");
                self.refuse(alias, &problem, "point it at the last name itself");
            }
        }
    }

    /// Whether the aliases from here on come to an end.
    fn ends(&self, alias: &'a FileSet) -> bool {
        let mut at = alias;
        for _ in 0..ALIASES_MAX {
            let Some(target) = at.set.data().next() else { return true };
            match self
                .sets
                .binary_search_by(|set| (&*set.owner, set.set.rtype).cmp(&(target, rtype::CNAME)))
            {
                Ok(found) => match self.sets.get(found) {
                    Some(next) => at = next,
                    None => return true,
                },
                Err(_) => return true,
            }
        }
        false
    }

    fn delegations(&mut self) {
        for set in self.sets {
            let (owner, rtype) = (&*set.owner, set.set.rtype);
            let at_cut = owner != self.apex && self.has(owner, rtype::NS);
            let address = matches!(rtype, rtype::A | rtype::AAAA);
            let above = ancestry(owner).skip(1).take_while(|name| name.len() > self.apex.len());
            let below = above.into_iter().any(|name| self.has(name, rtype::NS));
            if rtype == rtype::NS && at_cut && owner.starts_with(b"\x01*") {
                self.refuse(set, "delegates every name", "name what is delegated (RFC 4592)");
            } else if rtype == rtype::DS && !at_cut {
                let remedy = "add the NS records of the delegation, or take it out";
                self.refuse(set, "stands where nothing is delegated", remedy);
            } else if at_cut && !address && !matches!(rtype, rtype::NS | rtype::DS) {
                let remedy = "take it out: the servers of the delegation have it";
                self.refuse(set, "stands beside a delegation, so it is never answered", remedy);
            } else if below && !address {
                let remedy = "take it out: the servers of the delegation have it";
                self.refuse(set, "lies below a delegation, so it is never answered", remedy);
            }
        }
    }

    /// Names that records lead to, where they are of this file.
    fn targets(&mut self) {
        for set in self.sets {
            let skipped = match set.set.rtype {
                rtype::NS => 0,
                rtype::MX => 2,
                rtype::SRV => 6,
                _ => continue,
            };
            for data in set.set.data() {
                let target = data.get(skipped..).unwrap_or_default();
                if self.has(target, rtype::CNAME) {
                    let problem = format!("leads to {}, which is an alias", text_of(target));
                    self.refuse(set, &problem, "name the host itself (RFC 2181 section 10.3)");
                }
                let glue = set.set.rtype == rtype::NS
                    && *set.owner != *self.apex
                    && ancestry(target).any(|name| *name == *set.owner);
                let known = self.has(target, rtype::A) || self.has(target, rtype::AAAA);
                if glue && !known {
                    let problem =
                        format!("leads to {}, whose address is not here", text_of(target));
                    self.refuse(set, &problem, "add its A and AAAA records: nobody else has them");
                }
            }
        }
    }

    fn sizes(&mut self) {
        for set in self.sets {
            if set.set.rendered().len() > SET_BYTES_MAX {
                self.refuse(set, "does not fit an answer", "give the name fewer records");
            }
        }
    }
}
