//! Nodes that a command asks by their admin listeners: where each is reached, and what it said.

use std::time::Duration;

use model::Name;
use rt::admin::{AdminAddress, AdminListen, post};
use rt::client::{GetError, Reply};
use serde_json::Value;

/// How long a node may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A node to ask.
#[derive(Debug)]
pub(crate) struct Node {
    /// Its name, where the maps say it.
    pub(crate) name: Option<Name>,
    /// Where it is asked, or why it cannot be.
    pub(crate) admin: Result<AdminAddress, String>,
}

/// The edge of this host: its name, and its admin listener.
pub(crate) type Own = (Name, Option<AdminListen>);

impl Node {
    /// The node with this admin listener, whatever its name.
    pub(crate) fn at(admin: &AdminAddress) -> Self {
        Self { name: None, admin: Ok(admin.clone()) }
    }

    /// This host.
    pub(crate) fn own((name, admin): &Own) -> Self {
        let admin = admin.clone().map(AdminAddress::from);
        let admin = admin.ok_or_else(|| {
            "this host's config has no [admin]: add it, and start the edge again".to_owned()
        });
        Self { name: Some(name.clone()), admin }
    }

    /// A node of the maps: by its `admin` key, this host by its own listener.
    pub(crate) fn of_map(name: &Name, node: &nodemap::Node, own: Option<&Own>) -> Self {
        if let Some(own) = own.filter(|own| own.0 == *name) {
            return Self::own(own);
        }
        let admin = match &node.admin {
            Some(admin) => admin.parse().map_err(|why| format!("its admin {admin:?}: {why}")),
            None => Err(format!(
                "the maps do not say where its admin listener is: add admin to [node.{name}], or do \
                 it there"
            )),
        };
        Self { name: Some(name.clone()), admin }
    }

    /// What people know it by.
    pub(crate) fn shown(&self) -> String {
        match (&self.name, &self.admin) {
            (Some(name), _) => name.to_string(),
            (None, Ok(admin)) => admin.to_string(),
            (None, Err(_)) => "-".to_owned(),
        }
    }

    /// Has it do something: its receipt, or why there is none.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value, String> {
        let admin = self.admin.as_ref().map_err(Clone::clone)?;
        let (status, answer) = document(admin, post(admin, path, body, TIMEOUT).await)?;
        if !status {
            let error = answer["error"].as_str().unwrap_or("it does not say why");
            return Err(error.to_owned());
        }
        // What a tunnel that leads elsewhere did was not done where it should be.
        match (&self.name, answer["node"].as_str()) {
            (Some(name), Some(found)) if found != name.as_str() => {
                Err(format!("at {admin} answers {found}: it was done there, and not here"))
            }
            (_, None) => Err(format!("{admin} gives no receipt")),
            _ => Ok(answer),
        }
    }

    /// Its `/status`.
    pub(crate) async fn status(&self) -> Result<Value, String> {
        let admin = self.admin.as_ref().map_err(Clone::clone)?;
        let (_, answer) = document(admin, rt::admin::get(admin, "/status", TIMEOUT).await)?;
        let edge = &answer["edge"];
        match (&self.name, edge["node"].as_str()) {
            (_, None) => Err(format!("{admin} answers, but there is no edge")),
            (Some(name), Some(found)) if found != name.as_str() => {
                Err(format!("at {admin} answers {found}"))
            }
            _ => Ok(answer),
        }
    }
}

/// Whether it is an answer that all went well, and the answer.
fn document(admin: &AdminAddress, reply: Result<Reply, GetError>) -> Result<(bool, Value), String> {
    let reply = reply.map_err(|error| format!("{:#}", anyhow::Error::new(error)))?;
    let answer: Option<Value> = serde_json::from_slice(&reply.body).ok();
    match answer.filter(Value::is_object) {
        Some(answer) => Ok((reply.status.is_success(), answer)),
        None => {
            let status = reply.status;
            Err(format!("{admin} answered {status}: is it the admin listener of an edge?"))
        }
    }
}
