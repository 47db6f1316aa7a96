//! A client as it is known as long as its connection lasts.

use model::{Asn, CountryCode};
use rt::steering::View;
use serve::Client;
use steer::redirect::{Belongs, Visit, is_located};

use crate::project::Project;
use crate::state::Edge;

/// A client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Visitor {
    pub(crate) client: Client,
    /// Its origin AS, when a database knows it.
    pub(crate) asn: Option<Asn>,
    /// Its country, likewise.
    pub(crate) country: Option<CountryCode>,
    /// A database knows something of where it is.
    is_located: bool,
}

impl Visitor {
    /// One that comes now: what the databases say of it.
    pub(crate) fn of(client: Client, edge: &Edge) -> Self {
        let location = edge.steering.view().map(|view| view.locator.locate(client.address.ip()));
        let asn = location.as_ref().and_then(|location| location.asn);
        let is_located = location.as_ref().is_some_and(is_located);
        Self { client, asn, country: location.and_then(|location| location.country), is_located }
    }

    /// It asks this edge for content of a project.
    pub(crate) fn visit<'a>(&self, edge: &'a Edge, project: &'a Project, view: &View) -> Visit<'a> {
        let (name, address) = (&project.name, self.client.address.ip());
        Visit::new(&view.steering, name, address, self.is_located, &edge.name)
    }

    /// The pool to which it belongs when this node is not in it; empty when it is, `None` when nobody
    /// knows.
    pub(crate) fn missteered(&self, edge: &Edge, project: &Project) -> Option<String> {
        if !self.is_located {
            return None;
        }
        let view = edge.steering.view()?;
        match view.steering.belongs(&self.visit(edge, project, &view)) {
            Belongs::Here => Some(String::new()),
            Belongs::To(pool) => Some(pool.to_string()),
            Belongs::Unknown => None,
        }
    }
}
