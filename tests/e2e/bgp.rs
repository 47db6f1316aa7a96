//! `cacheboy bgp` beside real routers: each of BIRD, FRR, GoBGP, ExaBGP and OpenBGPD tells it routes,
//! takes some back where it can be asked to, dies, and comes back; then is asked for all of them again
//! while it tells them, and flaps. With `CACHEBOY_LONG` in the environment (`tests/run --long`) that is
//! 20 times with 262,144 routes more.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::{cacheboy, output, until, until_within};

/// A process that ends with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(command: &mut Command, log: &Path) -> Running {
    let log = fs::File::options().create(true).append(true).open(log).unwrap();
    let command = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    let program = command.get_program().to_owned();
    Running(command.spawn().unwrap_or_else(|error| {
        panic!("cannot run {}: {error}: tests/run installs it", program.display())
    }))
}

/// A collector at 127.83.`net`.1 and a router at 127.83.`net`.2, which is AS 65001.
struct Stage {
    dir: tempfile::TempDir,
    net: u8,
    _collector: Running,
}

impl Stage {
    fn new(net: u8, more: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = format!(
            "[host]\nname = \"collector\"\nstate_dir = \"state\"\n\n\
             [admin]\nlisten = \"unix:admin.sock\"\n\n\
             [bgp]\nasn = 65000\nidentifier = \"192.0.2.100\"\nhold_s = 9\n\
             listen = [\"127.83.{net}.1:1790\"]\npublish = [\"127.83.{net}.1:8054\"]\n\n\
             [[bgp.peer]]\nname = \"router\"\naddress = \"127.83.{net}.2\"\nasn = 65001\n\
             view = \"here\"\n{more}"
        );
        let path = dir.path().join("host.toml");
        fs::write(&path, config).unwrap();
        let mut command = cacheboy();
        command.args(["bgp", "--config"]).arg(&path);
        let collector = start(&mut command, &dir.path().join("collector.log"));
        let stage = Self { dir, net, _collector: collector };
        // A router that finds nobody tries again only after a while.
        until("the collector listens", || stage.get("/status").contains("\"router\""));
        stage
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: impl AsRef<str>) -> String {
        let text = text.as_ref().replace("NET", &self.net.to_string());
        let text = text.replace("DIR", self.dir.path().to_str().unwrap());
        fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    fn get(&self, path: &str) -> String {
        let url = format!("http://127.83.{}.1:8054{path}", self.net);
        output(Command::new("curl").args(["-s", "-m", "5", &url])).out
    }

    /// Posts to the admin listener, or gets from it.
    fn admin(&self, path: &str, posted: Option<&str>) -> String {
        let mut command = Command::new("curl");
        command.args(["-s", "-m", "5", "--unix-socket", &self.path("admin.sock")]);
        if let Some(body) = posted {
            command.args(["-H", "content-type: application/json", "-d", body]);
        }
        output(command.arg(format!("http://admin{path}"))).out
    }

    /// The state of the session with the router, and how many IPv4 routes it has told.
    fn router(&self) -> (String, u64) {
        let text = self.get("/status");
        let status: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let router = &status["peers"]["router"];
        let state = router["state"].as_str().unwrap_or_default();
        (state.to_owned(), router["routes"]["v4"].as_u64().unwrap_or(0))
    }

    /// Waits until this is the state of the session, and the router has told so many IPv4 routes.
    fn is(&self, state: &str, routes: u64) {
        let mut last = self.router();
        let came = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until_within(180, "the session and its routes are as they should", || {
                last = self.router();
                last.0 == state && last.1 == routes
            });
        }));
        if came.is_err() {
            panic!("{last:?}, not {state} with {routes} routes\n{}", self.logs());
        }
    }

    fn logs(&self) -> String {
        let log = |name| fs::read_to_string(self.path(name)).unwrap_or_default();
        format!("{}\n{}", log("collector.log"), log("router.log"))
    }

    /// Routes that the router has announced since the collector runs, those it repeated included.
    fn announced(&self) -> u64 {
        let metrics = self.admin("/metrics", None);
        let line = metrics.lines().find(|line| line.starts_with("cacheboy_bgp_announced_total{"));
        let value = line.and_then(|line| line.rsplit_once(' ')?.1.parse().ok());
        value.unwrap_or_else(|| panic!("no such metric in {metrics}"))
    }

    /// Waits until exactly these prefixes are heard of the router, in their order, besides the many.
    fn hears(&self, prefixes: &[&str]) {
        self.hears_of("router", prefixes);
    }

    fn hears_of(&self, name: &str, prefixes: &[&str]) {
        let mut last = String::new();
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until("the routes are those of the router", || {
                last = self.get(&format!("/heard?peer={name}&after={MANY_END}"));
                let lines =
                    last.lines().filter_map(|line| line.trim().strip_prefix("\"prefix\": "));
                let heard: Vec<_> = lines.map(|l| l.trim_matches([',', '"'])).collect();
                heard == prefixes
            });
        }));
        if read.is_err() {
            panic!("heard {last}\n{}\n{}", self.get("/status"), self.logs());
        }
    }
}

/// The many are the 10.0.0.0/8 in prefixes of this length, and this is after them.
fn many_length() -> u8 {
    if is_long() { 26 } else { 19 }
}
const MANY_END: &str = "10.255.255.255/32";

fn is_long() -> bool {
    std::env::var_os("CACHEBOY_LONG").is_some()
}

/// The many, each in a line of this form, with `PREFIX` for the prefix.
fn many(form: &str) -> String {
    let length = many_length();
    let line = |n: u32| {
        let address = std::net::Ipv4Addr::from_bits((10 << 24) + (n << (32 - length)));
        form.replace("PREFIX", &format!("{address}/{length}"))
    };
    (0..1u32 << (length - 8)).map(line).collect()
}

/// How many IPv4 routes each router tells.
fn told() -> u64 {
    (1 << (many_length() - 8)) + 2
}

const ALL: [&str; 3] = ["198.51.100.0/24", "203.0.113.0/24", "2001:db8:100::/48"];

/// What is done to the session from the router's side.
enum Flap<'a> {
    /// It is told to close it, and to open it again.
    Told(&'a dyn Fn(), &'a dyn Fn()),
    /// There is no such command: it is killed, and started again, so many times.
    Killed(usize),
}

/// What every router must go through: `start` starts it, `withdraw` has it take 198.51.100.0/24 back;
/// unless it `tells_again`, all that is asked when its routes are asked for again is that nothing breaks.
fn play(
    stage: &Stage,
    start: impl Fn() -> Running,
    withdraw: Option<&dyn Fn()>,
    tells_again: bool,
    flap: &Flap<'_>,
) {
    let router = start();
    // It is asked for all while it tells all, and when it has told all.
    let ask_again = || {
        // Some read a long config for a while before they connect.
        until_within(180, "the router is asked for its routes again", || {
            stage.admin("/bgp/refresh", Some("{\"peer\": \"router\"}")).contains("\"asked\"")
        });
    };
    ask_again();
    stage.is("established", told());
    stage.hears(&ALL);
    let before = stage.announced();
    ask_again();
    if tells_again {
        until_within(60, "all routes came again", || stage.announced() >= before + told());
    }
    stage.is("established", told());
    // What is best is decided once a second.
    for part in [
        "\"here\": [",
        "\"prefix\": \"203.0.113.0/24\"",
        "\"as_path\": \"65001\"",
        "\"best\": true",
    ] {
        until(part, || stage.get("/lookup?address=203.0.113.9").contains(part));
    }
    assert!(stage.get("/origins?peer=router").contains("\"asn\": 65001"));
    let (url, file) = (format!("http://127.83.{}.1:8054/routes", stage.net), stage.path("routes"));
    assert_eq!(output(Command::new("curl").args(["-s", "-m", "5", "-o", &file, &url])).code, 0);
    assert!(fs::read(&file).unwrap().starts_with(b"CBROUTES"), "followers are told the table");
    if let Some(withdraw) = withdraw {
        withdraw();
        stage.hears(&ALL[1..]);
    }
    // It dies without a word, and its routes with it; then it comes back.
    drop(router);
    stage.hears(&[]);
    assert_eq!(stage.router().1, 0);
    let mut router = Some(start());
    stage.is("established", told());
    stage.hears(&ALL);
    match flap {
        Flap::Told(down, up) => {
            for _ in 0..if is_long() { 20 } else { 3 } {
                down();
                until("the routes go with the session", || {
                    let (state, routes) = stage.router();
                    state != "established" && routes == 0
                });
                up();
                stage.is("established", told());
            }
        }
        Flap::Killed(times) => {
            for _ in 0..*times {
                drop(router.take());
                stage.hears(&[]);
                router = Some(start());
                stage.is("established", told());
            }
        }
    }
    stage.hears(&ALL);
}

#[test]
fn bird() {
    let stage = Stage::new(1, "passive = true\n");
    bird_many(&stage);
    let config = stage.write(
        "bird.conf",
        "router id 192.0.2.20;\nlog stderr all;\nprotocol device {}\n\
         include \"DIR/many.conf\";\n\
         protocol static s4 { ipv4; route 203.0.113.0/24 unreachable; }\n\
         protocol static second { ipv4; route 198.51.100.0/24 unreachable; }\n\
         protocol static s6 { ipv6; route 2001:db8:100::/48 unreachable; }\n\
         protocol bgp collector {\n local 127.83.NET.2 as 65001;\n neighbor 127.83.NET.1 port 1790 as 65000;\n\
         multihop 4;\n strict bind;\n connect delay time 1;\n error wait time 1, 2;\n\
         ipv4 { import none; export all; next hop address 192.0.2.20; };\n\
         ipv6 { import none; export all; next hop address 2001:db8::20; };\n}\n",
    );
    let (control, log) = (stage.path("bird.ctl"), stage.dir.path().join("router.log"));
    let bird = || start(Command::new("bird").args(["-f", "-c", &config, "-s", &control]), &log);
    let birdc = |words: &[&str]| {
        let ran = output(Command::new("birdc").args(["-s", &control]).args(words));
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    };
    let (down, up) = (|| birdc(&["disable", "collector"]), || birdc(&["enable", "collector"]));
    play(&stage, bird, Some(&|| birdc(&["disable", "second"])), true, &Flap::Told(&down, &up));
}

/// We connect: nobody connects to us.
#[test]
fn bird_that_waits() {
    let stage = Stage::new(2, "port = 1791\nlocal_address = \"127.83.2.1\"\n");
    bird_many(&stage);
    let config = stage.write(
        "bird.conf",
        "router id 192.0.2.20;\nlog stderr all;\nprotocol device {}\n\
         include \"DIR/many.conf\";\n\
         protocol static s4 { ipv4; route 203.0.113.0/24 unreachable; route 198.51.100.0/24 unreachable; }\n\
         protocol static s6 { ipv6; route 2001:db8:100::/48 unreachable; }\n\
         protocol bgp collector {\n local 127.83.NET.2 port 1791 as 65001;\n neighbor 127.83.NET.1 as 65000;\n\
         multihop 4;\n passive;\n strict bind;\n error wait time 1, 2;\n\
         ipv4 { import none; export all; next hop address 192.0.2.20; };\n\
         ipv6 { import none; export all; next hop address 2001:db8::20; };\n}\n",
    );
    let (control, log) = (stage.path("bird.ctl"), stage.dir.path().join("router.log"));
    let bird = || start(Command::new("bird").args(["-f", "-c", &config, "-s", &control]), &log);
    let birdc = |word: &str| {
        assert_eq!(output(Command::new("birdc").args(["-s", &control, word, "collector"])).code, 0);
    };
    play(&stage, bird, None, true, &Flap::Told(&|| birdc("disable"), &|| birdc("enable")));
}

/// A router that said it would restart keeps its routes while it is away; what it does not tell again
/// goes once it has told all.
#[test]
fn bird_restarts_gracefully() {
    let stage = Stage::new(10, "passive = true\n");
    let write = |routes: &str| {
        stage.write(
            "bird.conf",
            format!(
                "router id 192.0.2.20;\nlog stderr all;\ngraceful restart wait 5;\nprotocol device {{}}\n\
                 protocol static s4 {{ ipv4; {routes} }}\n\
                 protocol bgp collector {{\n local 127.83.NET.2 as 65001;\n \
                 neighbor 127.83.NET.1 port 1790 as 65000;\n multihop 4;\n strict bind;\n connect delay time 1;\n \
                 error wait time 1, 2;\n graceful restart yes;\n graceful restart time 60;\n \
                 ipv4 {{ import none; export all; next hop address 192.0.2.20; }};\n}}\n"
            ),
        )
    };
    let (stays, goes) = ("route 203.0.113.0/24 unreachable;", "route 198.51.100.0/24 unreachable;");
    let config = write(&format!("{stays} {goes}"));
    let (control, log) = (stage.path("bird.ctl"), stage.dir.path().join("router.log"));
    let bird = |more: &[&str]| {
        let mut command = Command::new("bird");
        start(command.args(["-f", "-c", &config, "-s", &control]).args(more), &log)
    };
    let router = bird(&[]);
    stage.is("established", 2);
    drop(router);
    until("the session is seen to be gone", || stage.router().0 != "established");
    assert_eq!(stage.router().1, 2, "its routes are kept");
    write(stays);
    // -R: recover from a restart.
    let _router = bird(&["-R"]);
    until("it is back", || {
        let (state, routes) = stage.router();
        assert!(routes > 0, "nothing goes before it has told all");
        state == "established" && routes == 1
    });
    stage.hears(&ALL[1..2]);
}

/// The file with the many that the config of a BIRD includes.
fn bird_many(stage: &Stage) {
    let routes = many("route PREFIX unreachable;\n");
    stage.write("many.conf", format!("protocol static many {{\nipv4;\n{routes}}}\n"));
}

#[test]
fn frr() {
    let stage = Stage::new(3, "passive = true\n");
    let config = stage.write(
        "bgpd.conf",
        "router bgp 65001\n bgp router-id 192.0.2.21\n no bgp ebgp-requires-policy\n no bgp network import-check\n \
         neighbor 127.83.NET.1 remote-as 65000\n neighbor 127.83.NET.1 port 1790\n \
         neighbor 127.83.NET.1 ebgp-multihop 4\n neighbor 127.83.NET.1 update-source 127.83.NET.2\n \
         neighbor 127.83.NET.1 disable-connected-check\n neighbor 127.83.NET.1 timers connect 1\n \
         address-family ipv4 unicast\nMANY  network 203.0.113.0/24\n  network 198.51.100.0/24\n exit-address-family\n \
         address-family ipv6 unicast\n  network 2001:db8:100::/48\n  neighbor 127.83.NET.1 activate\n \
         exit-address-family\n"
            .replace("MANY", &many("  network PREFIX\n")),
    );
    let (dir, log) = (stage.dir.path().to_str().unwrap(), stage.dir.path().join("router.log"));
    let pid = stage.path("bgpd.pid");
    let bgpd = || {
        let mut command = Command::new("/usr/lib/frr/bgpd");
        command.args(["-n", "-Z", "-S", "-p", "0", "-P", "0", "-u", "root", "-g", "root"]);
        start(command.args(["-f", &config, "--vty_socket", dir, "-i", &pid]), &log)
    };
    let configure = |lines: &[&str]| {
        let mut command = Command::new("vtysh");
        command.args(["--vty_socket", dir, "-d", "bgpd", "-c", "configure terminal"]);
        command.args(["-c", "router bgp 65001"]);
        let ran = output(command.args(lines.iter().flat_map(|line| ["-c", line])));
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    };
    let withdraw = || configure(&["address-family ipv4 unicast", "no network 198.51.100.0/24"]);
    let down = || configure(&["neighbor 127.83.3.1 shutdown"]);
    let up = || configure(&["no neighbor 127.83.3.1 shutdown"]);
    play(&stage, bgpd, Some(&withdraw), true, &Flap::Told(&down, &up));
}

#[test]
fn gobgp() {
    let stage = Stage::new(6, "passive = true\n");
    let config = stage.write(
        "gobgpd.toml",
        "[global.config]\n as = 65001\n router-id = \"192.0.2.22\"\n port = -1\n[[neighbors]]\n [neighbors.config]\n  \
         neighbor-address = \"127.83.NET.1\"\n  peer-as = 65000\n [neighbors.timers.config]\n  \
         connect-retry = 1\n  idle-hold-time-after-reset = 1\n [neighbors.transport.config]\n  \
         remote-port = 1790\n  local-address = \"127.83.NET.2\"\n [neighbors.ebgp-multihop.config]\n  \
         enabled = true\n  multihop-ttl = 4\n [[neighbors.afi-safis]]\n  [neighbors.afi-safis.config]\n   \
         afi-safi-name = \"ipv4-unicast\"\n [[neighbors.afi-safis]]\n  [neighbors.afi-safis.config]\n   \
         afi-safi-name = \"ipv6-unicast\"\n",
    );
    let log = stage.dir.path().join("router.log");
    let dump = stage.path("many.mrt");
    fs::write(&dump, dump_of_many()).unwrap();
    let gobgp = |words: &[&str]| {
        let mut command = Command::new("gobgp");
        output(command.args(["-u", "127.83.6.2", "-p", "50551", "global", "rib"]).args(words))
    };
    let gobgpd = || {
        let mut command = Command::new("gobgpd");
        let command =
            command.args(["-f", &config, "--api-hosts", "127.83.6.2:50551", "--pprof-disable"]);
        let running = start(command, &log);
        until("gobgpd answers", || gobgp(&[]).code == 0);
        for (prefix, next_hop, family) in [
            ("203.0.113.0/24", "192.0.2.22", "ipv4"),
            ("198.51.100.0/24", "192.0.2.22", "ipv4"),
            ("2001:db8:100::/48", "2001:db8::22", "ipv6"),
        ] {
            let ran = gobgp(&["add", prefix, "nexthop", next_hop, "-a", family]);
            assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        }
        let inject = ["-u", "127.83.6.2", "-p", "50551", "mrt", "inject", "global", &dump];
        let ran = output(Command::new("gobgp").args(inject).arg("--no-ipv6"));
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        let all = format!("Destination: {},", told());
        until_within(60, "GoBGP has its routes", || gobgp(&["summary"]).out.contains(&all));
        running
    };
    let neighbor = |word: &str| {
        let mut command = Command::new("gobgp");
        command.args(["-u", "127.83.6.2", "-p", "50551", "neighbor", "127.83.6.1", word]);
        assert_eq!(output(&mut command).code, 0);
    };
    let withdraw = || assert_eq!(gobgp(&["del", "198.51.100.0/24", "-a", "ipv4"]).code, 0);
    let (down, up) = (|| neighbor("disable"), || neighbor("enable"));
    play(&stage, gobgpd, Some(&withdraw), true, &Flap::Told(&down, &up));
}

#[test]
fn exabgp() {
    let stage = Stage::new(4, "passive = true\n");
    let config = stage.write(
        "exabgp.conf",
        "neighbor 127.83.NET.1 {\n router-id 192.0.2.24;\n local-address 127.83.NET.2;\n local-as 65001;\n \
         peer-as 65000;\n connect 1790;\n family { ipv4 unicast; ipv6 unicast; }\n \
         capability { route-refresh enable; }\n static {\n  \
         route 10.0.0.0/8 next-hop 192.0.2.24 split /MANY;\n  route 203.0.113.0/24 next-hop 192.0.2.24;\n  route 198.51.100.0/24 next-hop 192.0.2.24;\n  \
         route 2001:db8:100::/48 next-hop 2001:db8::24;\n }\n}\n"
            .replace("MANY", &many_length().to_string()),
    );
    let log = stage.dir.path().join("router.log");
    let exabgp = || {
        let mut command = Command::new("exabgp");
        for (key, value) in [
            ("exabgp.daemon.daemonize", "false"),
            ("exabgp.daemon.user", "root"),
            ("exabgp.api.cli", "false"),
            ("exabgp.log.level", "INFO"),
        ] {
            command.env(key, value);
        }
        start(command.arg(&config), &log)
    };
    play(&stage, exabgp, None, true, &Flap::Killed(3));
}

#[test]
fn openbgpd() {
    use std::os::unix::fs::PermissionsExt;
    let stage = Stage::new(5, "passive = true\n");
    let config = stage.write(
        "bgpd.conf",
        "AS 65001\nrouter-id 192.0.2.25\nfib-update no\nlisten on 127.83.NET.2 port 1791\nMANY\
         socket \"DIR/bgpd.sock\"\nnetwork 203.0.113.0/24 set nexthop 192.0.2.25\n\
         network 198.51.100.0/24 set nexthop 192.0.2.25\n\
         network 2001:db8:100::/48 set nexthop 2001:db8::25\nneighbor 127.83.NET.1 {\n remote-as 65000\n \
         local-address 127.83.NET.2\n port 1790\n multihop 4\n announce IPv4 unicast\n \
         announce IPv6 unicast\n}\nallow to any\n"
            .replace("MANY", &many("network PREFIX set nexthop 192.0.2.25\n")),
    );
    fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).unwrap();
    // Where it shuts itself in; its service unit would make it.
    fs::create_dir_all("/run/openbgpd").unwrap();
    let log = stage.dir.path().join("router.log");
    let bgpd = || start(Command::new("/usr/sbin/bgpd").args(["-d", "-f", &config]), &log);
    let socket = stage.path("bgpd.sock");
    let bgpctl = |word: &str| {
        let mut command = Command::new("bgpctl");
        let ran = output(command.args(["-s", &socket, "neighbor", "127.83.5.1", word]));
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    };
    // OpenBGPD 7.7 says of every family that it was not negotiated, when it is asked for routes again.
    play(&stage, bgpd, None, false, &Flap::Told(&|| bgpctl("down"), &|| bgpctl("up")));
}

/// The many as a dump of a table (RFC 6396 TABLE_DUMP_V2) of one peer.
fn dump_of_many() -> Vec<u8> {
    let record = |subtype: u16, body: Vec<u8>| {
        let mut record = vec![0; 4];
        record.extend(13u16.to_be_bytes());
        record.extend(subtype.to_be_bytes());
        record.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
        record.extend(body);
        record
    };
    // The collector, no name, one peer: IPv4 and a 4-octet AS.
    let peers = [192, 0, 2, 9, 0, 0, 0, 1, 2, 192, 0, 2, 8, 192, 0, 2, 8, 0, 0, 0xfd, 0xe9];
    let mut dump = record(1, peers.to_vec());
    let attributes = [0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 0, 0xff, 0xf0, 0x40, 3, 4, 192, 0, 2, 22];
    // GoBGP forgets some of the last ones that it reads: they are there several times.
    let many = many("PREFIX\n");
    let again = many.lines().rev().take(1).cycle().take(4096);
    for (n, prefix) in many.lines().chain(again).enumerate() {
        let net: ipnet::Ipv4Net = prefix.parse().unwrap();
        let mut body = u32::try_from(n).unwrap().to_be_bytes().to_vec();
        body.push(net.prefix_len());
        body.extend(&net.addr().octets()[..usize::from(net.prefix_len().div_ceil(8))]);
        body.extend([0, 1, 0, 0, 0, 0, 0, 0, 0, attributes.len() as u8]);
        body.extend(attributes);
        dump.extend(record(2, body));
    }
    dump
}

/// What one BIRD hears from another it dumps into a file; we read that, compressed either way, and again
/// when it changes. One that cannot be read changes nothing.
#[test]
fn files_of_routes() {
    let stage = Stage::new(
        8,
        "passive = true\n[[bgp.mrt]]\nname = \"dump\"\nfile = \"routes.mrt\"\nview = \"elsewhere\"\n",
    );
    let config = |listener: bool, more: &str| {
        let (own, asn, other, other_asn) =
            if listener { (4, 65004, 3, 65003) } else { (3, 65003, 4, 65004) };
        let (import, export) = if listener { ("all", "none") } else { ("none", "all") };
        format!(
            "router id 192.0.2.3{own};\nlog stderr all;\nprotocol device {{}}\n{more}\
             protocol bgp others {{\n local 127.83.NET.{own} port 1791 as {asn};\n \
             neighbor 127.83.NET.{other} port 1791 as {other_asn};\n multihop 4;\n strict bind;\n \
             connect delay time 1;\n error wait time 1, 2;\n \
             ipv4 {{ import {import}; export {export}; next hop address 192.0.2.33; }};\n \
             ipv6 {{ import {import}; export {export}; next hop address 2001:db8::33; }};\n}}\n"
        )
    };
    let routes = "protocol static s4 { ipv4; route 203.0.113.0/24 unreachable; }\n\
                  protocol static second { ipv4; route 198.51.100.0/24 unreachable; }\n\
                  protocol static s6 { ipv6; route 2001:db8:100::/48 unreachable; }\n";
    let mut birds = Vec::new();
    let log = stage.dir.path().join("router.log");
    for (name, config) in [("teller", config(false, routes)), ("dumper", config(true, ""))] {
        let (path, control) = (stage.write(name, &config), stage.path(&format!("{name}.ctl")));
        birds.push(start(Command::new("bird").args(["-f", "-c", &path, "-s", &control]), &log));
    }
    let birdc = |name: &str, words: &str| {
        let control = stage.path(&format!("{name}.ctl"));
        output(Command::new("birdc").args(["-s", &control]).args(words.split(' ')))
    };
    let dumped = |routes: usize, compress: &str| {
        until("the routes are heard", || {
            birdc("dumper", "show route count").out.contains(&format!("Total: {routes} of"))
        });
        // Each dump is a whole file; a table of each family makes two.
        let mut all = Vec::new();
        for table in ["master4", "master6"] {
            let path = stage.path(table);
            let _ = fs::remove_file(&path);
            let said = birdc("dumper", &format!("mrt dump table \"{table}\" to \"{path}\""));
            assert_eq!(said.code, 0, "{}{}", said.out, said.err);
            let has_it = || fs::read(&path).is_ok_and(|bytes| bytes.len() > 100);
            until("the dump is written", has_it);
            all.extend(fs::read(&path).unwrap());
        }
        let script = format!(
            "import {compress}, os, sys\nd = {compress}.compress(open(sys.argv[1], 'rb').read())\n\
             open(sys.argv[2] + '.new', 'wb').write(d)\nos.rename(sys.argv[2] + '.new', sys.argv[2])\n"
        );
        fs::write(stage.path("all"), all).unwrap();
        let (from, to) = (stage.path("all"), stage.path("routes.mrt"));
        assert_eq!(output(Command::new("python3").args(["-c", &script, &from, &to])).code, 0);
    };
    dumped(3, "gzip");
    stage.hears_of("dump", &ALL);
    let lookup = stage.get("/lookup?address=203.0.113.9");
    for part in ["\"elsewhere\": [", "\"peer\": \"dump\"", "\"as_path\": \"65003\"", "192.0.2.33"] {
        assert!(lookup.contains(part), "{part} is not in {lookup}");
    }
    assert_eq!(birdc("teller", "disable second").code, 0);
    dumped(2, "bz2");
    stage.hears_of("dump", &ALL[1..]);

    let whole = fs::read(stage.path("routes.mrt")).unwrap();
    fs::write(stage.path("routes.mrt"), &whole[..whole.len() / 2]).unwrap();
    until("the cut file is refused", || stage.get("/status").contains("record 1 cannot be read"));
    stage.hears_of("dump", &ALL[1..]);
}

/// A peer that falls silent with its connection open is gone after the hold time (9 s here).
#[test]
fn silence() {
    let stage = Stage::new(7, "passive = true\n");
    let script = "import socket, struct, sys\n\
        m = lambda t, b: b'\\xff' * 16 + struct.pack('>HB', 19 + len(b), t) + b\n\
        s = socket.socket()\n\
        s.bind(('127.83.7.2', 0))\n\
        s.connect(('127.83.7.1', 1790))\n\
        s.sendall(m(1, struct.pack('>BHH', 4, 65001, 90) + bytes([192, 0, 2, 9, 0])) + m(4, b''))\n\
        a = bytes([0x40, 1, 1, 0, 0x40, 2, 4, 2, 1, 0xfd, 0xe9, 0x40, 3, 4, 192, 0, 2, 1])\n\
        s.sendall(m(2, struct.pack('>HH', 0, len(a)) + a + bytes([24, 203, 0, 113])))\n\
        while s.recv(4096): pass\n";
    let log = stage.dir.path().join("router.log");
    let _router = start(Command::new("python3").args(["-c", script]), &log);
    stage.hears(&["203.0.113.0/24"]);
    stage.hears(&[]);
    let status = stage.get("/status");
    assert!(status.contains("we said hold-timer-expired"), "{status}");
}
