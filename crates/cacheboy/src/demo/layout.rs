//! The demo network on paper: seven processes, their addresses, and every file they start from.
//!
//! All of it is ordinary configuration: copy the folder, change the addresses, and it is a CDN.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// HTTP port of edges, masters and health.
pub(crate) const HTTP_PORT: u16 = 7080;
/// Admin port (`/metrics`, `/status`) of every process, on its own address.
pub(crate) const ADMIN_PORT: u16 = 7081;
/// DNS port of the redirector.
pub(crate) const DNS_PORT: u16 = 7053;
/// The steered name.
pub(crate) const NAME: &str = "videolan.cdn.example";
/// The project's own name, which is a CNAME to [`NAME`] in the project's own DNS.
pub(crate) const HOST: &str = "download.videolan.example";
/// Probe interval, milliseconds.
pub(crate) const PROBE_INTERVAL_MS: u64 = 1000;
/// Probe timeout, milliseconds.
pub(crate) const PROBE_TIMEOUT_MS: u64 = 500;
/// Failed probes until a node is down.
pub(crate) const PROBE_FALL: u64 = 2;
/// How long a dead node may still be answered, milliseconds: fall x interval + timeout + 1 s.
pub(crate) const DETECT_MS: u64 = PROBE_FALL * PROBE_INTERVAL_MS + PROBE_TIMEOUT_MS + 1000;

const MAPS: [(&str, &str); 3] = [
    ("nodes.toml", include_str!("../../demo/maps/nodes.toml")),
    ("projects.toml", include_str!("../../demo/maps/projects.toml")),
    ("steering.toml", include_str!("../../demo/maps/steering.toml")),
];

/// What a process of the demo does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Master,
    Edge,
    Health,
    Dns,
}

impl Role {
    /// The subcommand and the name of the config file.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Master => "master",
            Self::Edge => "edge",
            Self::Health => "health",
            Self::Dns => "dns",
        }
    }
}

/// One process of the demo.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    /// Last octet of its address 127.77.0.x.
    octet: u8,
}

impl Host {
    pub(crate) fn ip(&self) -> Ipv4Addr {
        Ipv4Addr::new(127, 77, 0, self.octet)
    }

    /// Where clients reach it.
    pub(crate) fn address(&self) -> SocketAddr {
        let port = if self.role == Role::Dns { DNS_PORT } else { HTTP_PORT };
        SocketAddr::new(self.ip().into(), port)
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        SocketAddr::new(self.ip().into(), ADMIN_PORT)
    }

    /// The documentation address that AAAA answers carry for it, if it is an edge.
    pub(crate) fn ip6(&self) -> Ipv6Addr {
        // The same digits are read there as hexadecimal: 127.77.0.11 and 2001:db8:77::11.
        let last = u16::from(self.octet / 10 * 16 + self.octet % 10);
        Ipv6Addr::new(0x2001, 0xdb8, 0x77, 0, 0, 0, 0, last)
    }
}

/// Every process, in the order of starting.
pub(crate) const HOSTS: [Host; 7] = [
    Host { name: "master1", role: Role::Master, octet: 21 },
    Host { name: "master2", role: Role::Master, octet: 22 },
    Host { name: "mirror1-au", role: Role::Edge, octet: 11 },
    Host { name: "mirror1-us", role: Role::Edge, octet: 12 },
    Host { name: "mirror1-de", role: Role::Edge, octet: 13 },
    Host { name: "health1", role: Role::Health, octet: 31 },
    Host { name: "ns1", role: Role::Dns, octet: 53 },
];

/// The edge that also listens on ::1.
pub(crate) const IPV6_EDGE: &str = "mirror1-de";

/// The folder of one demo network.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) dir: PathBuf,
}

impl Layout {
    /// The folder of one process.
    pub(crate) fn host_dir(&self, host: &Host) -> PathBuf {
        self.dir.join(host.name)
    }

    /// The config file of one process.
    pub(crate) fn config(&self, host: &Host) -> PathBuf {
        self.host_dir(host).join(format!("{}.toml", host.role.word()))
    }

    /// The log of one process.
    pub(crate) fn log(&self, host: &Host) -> PathBuf {
        self.host_dir(host).join("log")
    }

    /// The folder of admin maps.
    pub(crate) fn maps(&self) -> PathBuf {
        self.dir.join("maps")
    }

    /// The content tree of a master.
    pub(crate) fn tree(&self, host: &Host) -> PathBuf {
        self.host_dir(host).join("tree")
    }

    /// Writes maps, the database and every config file. `content` is the tree that both masters
    /// serve; without it each has its own copy below its folder.
    pub(crate) fn write(&self, content: Option<&Path>) -> io::Result<()> {
        fs::create_dir_all(self.maps())?;
        for (name, text) in MAPS {
            fs::write(self.maps().join(name), text)?;
        }
        fs::create_dir_all(self.dir.join("geo"))?;
        fs::write(self.dir.join("geo/demo.mmdb"), crate::geo::DEMO_DATABASE)?;
        for host in &HOSTS {
            let dir = self.host_dir(host);
            // What an earlier demo left would make the first client of this one a hit.
            if dir.is_dir() {
                fs::remove_dir_all(&dir)?;
            }
            fs::create_dir_all(dir.join("state"))?;
            fs::write(self.config(host), self.config_text(host, content))?;
        }
        Ok(())
    }

    fn config_text(&self, host: &Host, content: Option<&Path>) -> String {
        let (name, ip) = (host.name, host.ip());
        let head = format!(
            "# {name}: written by `cacheboy demo`\n[host]\nname = \"{name}\"\nstate_dir = \"state\"\n\n\
             [admin]\nlisten = \"{ip}:{ADMIN_PORT}\"\n\n"
        );
        let follow = format!(
            "[follow]\nnode_map = [\"http://{}/node-map\"]\n\n",
            host_named("health1").address()
        );
        let body = match host.role {
            Role::Master => {
                let tree = content.map_or("tree".into(), |path| path.display().to_string());
                format!("[master]\nlisten = [\"{ip}:{HTTP_PORT}\"]\ntree = {}\n", quoted(&tree))
            }
            Role::Edge => {
                let ipv6 = if name == IPV6_EDGE {
                    format!(", \"[::1]:{HTTP_PORT}\"")
                } else {
                    String::new()
                };
                format!(
                    "{follow}[edge]\nlisten = [\"{ip}:{HTTP_PORT}\"{ipv6}]\n\
                     drain_notice_s = 0\ndrain_deadline_s = 5\n\n\
                     [[edge.store]]\npath = \"cache\"\nsize = \"1 GiB\"\n"
                )
            }
            Role::Dns => format!(
                "{follow}[location]\ncountry = \"../geo/demo.mmdb\"\nasn = \"../geo/demo.mmdb\"\n\n\
                 [dns]\nlisten = [\"{ip}:{DNS_PORT}\"]\nudp_threads = 1\n"
            ),
            Role::Health => format!(
                "[health]\nlisten = [\"{ip}:{HTTP_PORT}\"]\nmaps = \"../maps\"\n\n\
                 [health.probe]\nport = {HTTP_PORT}\ninterval_ms = {PROBE_INTERVAL_MS}\n\
                 timeout_ms = {PROBE_TIMEOUT_MS}\nrise = 2\nfall = {PROBE_FALL}\n\n\
                 # Documentation addresses cannot be reached: probe the machines that stand for them.\n\
                 [health.probe.connect_to]\n{}",
                connect_to()
            ),
        };
        head + &body
    }
}

/// Where the documentation addresses of the edges are really probed.
fn connect_to() -> String {
    let edges = HOSTS.iter().filter(|host| host.role == Role::Edge);
    edges.fold(String::new(), |text, edge| {
        let real: IpAddr =
            if edge.name == IPV6_EDGE { Ipv6Addr::LOCALHOST.into() } else { edge.ip().into() };
        text + &format!("\"{}\" = \"{}\"\n", edge.ip6(), SocketAddr::new(real, HTTP_PORT))
    })
}

/// The process called `name`.
#[allow(clippy::expect_used, reason = "names of a constant table")]
pub(crate) fn host_named(name: &str) -> &'static Host {
    HOSTS.iter().find(|host| host.name == name).expect("a name of the table")
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        '\\' | '"' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
        c => c.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_path_can_be_written_into_a_config() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout { dir: dir.path().to_owned() };
        let content = Path::new("/a \"b\"\\c\nd\u{7f}é");
        layout.write(Some(content)).unwrap();
        let master = config::load(&layout.config(host_named("master1"))).unwrap().master.unwrap();
        assert_eq!(master.tree, content);
    }

    #[test]
    fn every_file_of_the_demo_is_accepted_by_check() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout { dir: dir.path().to_owned() };
        layout.write(None).unwrap();
        assert_eq!(nodemap::admin::load_dir(&layout.maps()).err(), None);
        for host in &HOSTS {
            config::load(&layout.config(host)).unwrap();
        }
    }
}
