//! Who is sent where.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};

use super::{Figures, figures};
use crate::demo::dig::{self, Question};
use crate::demo::layout::{NAME, host_named};

/// A real network, and the node that `maps/steering.toml` names for it.
pub(super) struct Client {
    pub(super) subnet: &'static str,
    /// Whose it is, for people.
    whose: &'static str,
    pub(super) node: &'static str,
}

const fn client(subnet: &'static str, whose: &'static str, node: &'static str) -> Client {
    Client { subnet, whose, node }
}

/// Real client networks of different countries, and why each goes where it goes.
pub(super) const CLIENTS: [Client; 12] = [
    client("1.128.0.0/24", "Telstra AU: continent OC", "mirror1-au"),
    client("203.97.0.0/24", "One NZ: continent OC", "mirror1-au"),
    client("114.160.0.0/24", "NTT JP: AS 4713 before its country", "mirror1-au"),
    client("202.232.2.0/24", "IIJ JP: country JP before its continent", "mirror1-us"),
    client("24.0.0.0/24", "Comcast US: continent NA", "mirror1-us"),
    client("99.224.0.0/24", "Rogers CA: continent NA", "mirror1-us"),
    client("200.160.2.0/24", "NIC.br BR: continent SA", "mirror1-us"),
    client("87.128.0.0/24", "Deutsche Telekom DE: continent EU", "mirror1-de"),
    client("80.10.0.0/24", "FR: continent EU", "mirror1-de"),
    client("81.2.69.0/24", "Andrews & Arnold GB: continent EU", "mirror1-de"),
    client("105.184.0.0/24", "Telkom ZA: continent AF", "mirror1-de"),
    client("117.192.0.0/24", "BSNL IN: country IN before its continent", "mirror1-de"),
];

const CLIENTS_IPV6: [Client; 4] = [
    client("2001:44b8::/48", "iiNet AU", "mirror1-au"),
    client("2601::/48", "Comcast US", "mirror1-us"),
    client("2003:40::/48", "Deutsche Telekom DE", "mirror1-de"),
    client("2804::/48", "BR", "mirror1-us"),
];

async fn ask_both(client: &Client, expected: IpAddr) -> Result<u8> {
    let subnet = client.subnet.parse().context("a network of the table")?;
    let question = Question::for_client(NAME, subnet);
    let mut scope = 0;
    for (transport, answer) in
        [("UDP", dig::ask_udp(&question).await), ("TCP", dig::ask_tcp(&question).await)]
    {
        let answer = answer.with_context(|| format!("{} ({})", client.subnet, client.whose))?;
        let address = answer.address()?;
        ensure!(
            address == expected,
            "{} ({}) got {address} over {transport} instead of {expected} ({})",
            client.subnet,
            client.whose,
            client.node
        );
        scope = answer.scope.context("the answer carries no client subnet")?;
        ensure!(
            scope > 0,
            "{} got scope 0: its answer would be cached for everyone",
            client.subnet
        );
    }
    Ok(scope)
}

async fn ask_all(clients: &[Client], address: impl Fn(&Client) -> IpAddr) -> Result<Figures> {
    let mut scopes = 0u32;
    let mut nodes = BTreeSet::new();
    for client in clients {
        scopes += u32::from(ask_both(client, address(client)).await?);
        nodes.insert(client.node);
    }
    let mean = f64::from(scopes) / clients.len() as f64;
    Ok(figures([
        ("clients", clients.len().into()),
        ("queries", (clients.len() * 2).into()),
        ("nodes", nodes.len().into()),
        ("mean_scope", ((mean * 10.0).round() / 10.0).into()),
    ]))
}

/// Every client of the table, by UDP and TCP.
pub(super) async fn resolve() -> Result<Figures> {
    ask_all(&CLIENTS, |client| host_named(client.node).ip().into()).await
}

/// AAAA by IPv6 client subnets.
pub(super) async fn resolve_ipv6() -> Result<Figures> {
    ask_all(&CLIENTS_IPV6, |client| host_named(client.node).ip6().into()).await
}
