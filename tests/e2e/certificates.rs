//! Certificates by ACME: Pebble, the test authority of Let's Encrypt, orders against a real network.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use support::network::Network;
use support::{Ran, cacheboy, certificate, output, until};

/// Puts text into a file of the network.
fn edit(network: &Network, file: &str, from: &str, to: &str) {
    let path = network.dir().join(file);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{from}");
    fs::write(path, text.replace(from, to)).unwrap();
}

/// A zone of a customer, who has made this alias once.
const ZONE: &str = "@ 60 SOA ns1 noc 1 60 60 60 60\n@ 60 NS ns1\nns1 60 A 192.0.2.1\n\
                    _acme-challenge.www 60 CNAME _acme-challenge.files.cdn.example.\n";

/// A running authority; ends with this value.
struct Pebble(Child);

impl Pebble {
    /// Asks the DNS of `net`, and edges at their port. It refuses some of its own nonces, percent.
    fn start(dir: &Path, net: &str, nonces_refused: &str) -> Self {
        certificate::make(&dir.join("pebble"), &[format!("{net}.9")]);
        let config = serde_json::json!({ "pebble": {
            "listenAddress": format!("{net}.9:14000"),
            "managementListenAddress": format!("{net}.9:15000"),
            "certificate": dir.join("pebble/chain.pem"),
            "privateKey": dir.join("pebble/key.pem"),
            "httpPort": 7080, "tlsPort": 7443,
            "ocspResponderURL": "", "externalAccountBindingRequired": false,
        } });
        fs::write(dir.join("pebble.json"), config.to_string()).unwrap();
        let log = fs::File::create(dir.join("pebble.log")).unwrap();
        let mut command = Command::new("pebble");
        command.args(["-config", "pebble.json", "-dnsserver", &format!("{net}.1:7053")]);
        command.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_WFE_NONCEREJECT", nonces_refused);
        command.env("PEBBLE_AUTHZREUSE", "0").current_dir(dir);
        let child =
            command.stdout(log.try_clone().unwrap()).stderr(log).stdin(Stdio::null()).spawn();
        let pebble = Self(child.unwrap_or_else(|e| panic!("pebble: {e}: tests/run installs it")));
        let url = format!("https://{net}.9:14000/dir");
        until("pebble answers", || output(Command::new("curl").args(["-sk", &url])).code == 0);
        pebble
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A network whose first host orders, and answers DNS.
fn network(net: &'static str, challenge: &str, hosts: &str, nonces: &str) -> (Network, Pebble) {
    let mut network = Network::start(net, "");
    let pebble = Pebble::start(network.dir(), net, nonces);
    let acme = format!(
        "[health.acme]\ndirectory = \"https://{net}.9:14000/dir\"\nca = \"pebble/chain.pem\"\n\
         contact = [\"mailto:noc@cdn.example\"]\nchallenge = \"{challenge}\"\n"
    );
    let hand_out = format!("listen = [\"{net}.1:7054\"]\naddress = \"{net}.1:7054\"\n");
    let acme = acme + &hand_out;
    let dns = format!("[dns]\nlisten = [\"{net}.1:7053\"]\nzone_files = \"zones\"\n");
    fs::create_dir(network.dir().join("zones")).unwrap();
    fs::write(network.dir().join("zones/customer.example.zone"), ZONE).unwrap();
    edit(&network, "one.toml", "[health.probe]", &format!("{dns}\n{acme}\n[health.probe]"));
    let with_hosts = format!("tls = \"acme\"\nhosts = [\"*\", {hosts}]");
    edit(&network, "maps/all.toml", "hosts = [\"*\"]", &with_hosts);
    network.restart(0, "TERM");
    (network, pebble)
}

fn cert(network: &Network, args: &[&str]) -> Ran {
    let mut command = cacheboy();
    command.arg("cert").args(args).args(["--config", "one.toml"]).current_dir(network.dir());
    output(&mut command)
}

/// What is known of the certificate of `name`.
fn known(network: &Network, name: &str) -> Value {
    let ran = cert(network, &["status", "--json"]);
    let acme: Value = serde_json::from_str(&ran.out).unwrap_or_default();
    let all = acme["certificates"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|one| one["name"] == name).unwrap_or_default()
}

/// The file of the certificate of `name` at the publisher.
fn kept(network: &Network, net: &str, name: &str) -> String {
    let path = network.dir().join(format!("one/acme/{net}.9-dir/{name}.pem"));
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    fs::read_to_string(path).unwrap()
}

#[test]
fn certificates_are_ordered_by_edges_answering_whatever_nonces_are_refused() {
    let net = "127.80.40";
    let (network, _pebble) = network(net, "http-01", "\"files.cdn.example\"", "20");
    until("it is issued", || known(&network, "files.cdn.example")["state"] == "good");
    let first = kept(&network, net, "files.cdn.example");
    assert!(first.contains("PRIVATE KEY") && first.contains("BEGIN CERTIFICATE"));
    let ran = cert(&network, &["reissue", "FILES.cdn.example"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    until("it is issued anew", || kept(&network, net, "files.cdn.example") != first);
    let ran = cert(&network, &["reissue", "strange.example"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("is it a host of a project with tls"), "{}", ran.err);
    // What masters have below that path is nobody's business while we order.
    let url = format!("http://{}/.well-known/acme-challenge/some_token-1", network.edge(1));
    let ran = output(Command::new("curl").args(["-sS", &url]));
    assert!(ran.out.starts_with("some_token-1."), "any edge answers: {}", ran.out);
    let url = format!("http://{}/.well-known/acme-challenge/%3Cscript%3E", network.edge(1));
    let ran = output(Command::new("curl").args(["-sS", &url]));
    assert!(!ran.out.contains("script"), "{}", ran.out);
    // No secret is anywhere but in its files.
    let key = first.lines().nth(1).unwrap();
    let log = fs::read_to_string(network.dir().join("one.log")).unwrap();
    for (where_, text) in [
        ("log", log),
        ("status", network.admin("one", "status")),
        ("metrics", network.admin("one", "metrics")),
    ] {
        assert!(!text.contains(key) && !text.contains("PRIVATE KEY"), "{where_}");
    }
}

#[test]
fn our_dns_answers_for_our_names_and_for_those_that_customers_alias() {
    let net = "127.80.41";
    let hosts = "\"files.cdn.example\", \"www.customer.example\", \"strange.example\"";
    let (network, _pebble) = network(net, "dns-01", hosts, "5");
    until("it is issued", || known(&network, "files.cdn.example")["state"] == "good");
    until("and for the alias", || known(&network, "www.customer.example")["state"] == "good");
    until("what is not ours is refused", || known(&network, "strange.example")["refusals"] == 1);
    let refused = known(&network, "strange.example");
    assert_eq!(refused["state"], "none");
    let why = refused["why"].as_str().unwrap();
    assert!(why.starts_with("the authority refuses: "), "{why}");
    assert_eq!(network.metric("one", "cacheboy_health_acme_orders_total"), 3);
    let ran =
        output(cacheboy().args(["status", "--config", "one.toml"]).current_dir(network.dir()));
    assert!(ran.out.contains("certificate strange.example none: the authority"), "{}", ran.out);
    // The text is taken back.
    until("no text is left", || {
        let ask =
            ["+short", "-p", "7053", "@127.80.41.1", "TXT", "_acme-challenge.files.cdn.example"];
        output(Command::new("dig").args(ask)).out.is_empty()
    });
}

/// What `host` is shown at the second edge, by the root of the authority.
fn fetched(network: &Network, net: &str, root: &Path) -> Ran {
    let to = format!("files.cdn.example:7443:{net}.2");
    let mut command = Command::new("curl");
    command.args(["-sS", "--resolve", &to, "--cacert"]).arg(root);
    output(command.arg("https://files.cdn.example:7443/hello").current_dir(network.dir()))
}

#[test]
fn edges_fetch_certificates_and_use_them_at_once_and_guests_get_none() {
    let net = "127.80.42";
    let (mut network, _pebble) = network(net, "http-01", "\"files.cdn.example\"", "5");
    let files = "[[tls.certificate]]\nchain = \"tls/chain.pem\"\nkey = \"tls/key.pem\"";
    edit(&network, "two.toml", files, "[tls]\npublisher = true");
    network.restart(1, "TERM");
    let name = "files.cdn.example";
    until("it is issued", || known(&network, name)["state"] == "good");
    until("two is no node that may fetch", || {
        network.metric("one", "cacheboy_health_acme_handed_out_total") > 0
    });
    let log = fs::read_to_string(network.dir().join("two.log")).unwrap();
    assert!(log.contains("the publisher does not know this node: add identity = "), "{log}");
    // The maps say who it is; no process is started anew from here on.
    let ran = output(
        cacheboy().args(["cert", "identity", "--config", "two.toml"]).current_dir(network.dir()),
    );
    let line = ran.out.lines().nth(1).unwrap_or_else(|| panic!("{}", ran.err)).to_owned();
    edit(&network, "maps/all.toml", "[node.two]", &format!("[node.two]\n{line}"));
    let root = network.dir().join("root.pem");
    let url = format!("https://{net}.9:15000/roots/0");
    let ran = output(Command::new("curl").args(["-sk", "-o"]).arg(&root).arg(&url));
    assert_eq!(ran.code, 0, "{}", ran.err);
    until("two shows it", || fetched(&network, net, &root).out == "hello\n");
    let folder = network.dir().join("two/certificates");
    let file = folder.join("files.cdn.example.pem");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    let first = kept(&network, net, name);
    assert_eq!(fs::read_to_string(&file).unwrap(), first);

    // A publisher that is started anew has all of it, and orders nothing.
    network.restart(0, "TERM");
    until("it knows its certificate", || known(&network, name)["state"] == "good");
    assert_eq!(kept(&network, net, name), first);
    assert_eq!(network.metric("one", "cacheboy_health_acme_orders_total"), 0);

    // All that two has got gets new keys.
    let ran = cert(&network, &["reissue", "--node", "two"]);
    assert_eq!((ran.code, ran.out.starts_with(name)), (0, true), "{}{}", ran.out, ran.err);
    until("two has the new one", || {
        let new = kept(&network, net, name);
        new != first && fs::read_to_string(&file).unwrap() == new
    });
    assert_eq!(fetched(&network, net, &root).out, "hello\n");
    let ran = cert(&network, &["reissue", "--node", "one"]);
    assert!(ran.code == 1 && ran.err.contains("one has got no certificate"), "{}", ran.err);

    // Nobody else gets anything: not without a key, nor with one that no node has.
    let url = format!("https://{net}.1:7054/certificates");
    let ran = output(Command::new("curl").args(["-sSk", &url]));
    assert!(ran.code != 0 && ran.out.is_empty(), "{}", ran.out);
    let own = network.dir().join("one/identity.pem");
    let mut command = Command::new("curl");
    command.args(["-sSk", "-w", "%{http_code}", "--cert"]).arg(&own).arg("--key").arg(&own);
    let ran = output(command.arg(&url));
    assert_eq!(ran.out, "no node of the maps has this identity\n403", "{}", ran.err);

    edit(&network, "maps/all.toml", &line, &format!("{line}\ntrust = \"guest\""));
    until("a guest keeps nothing", || fs::read_dir(&folder).unwrap().next().is_none());
    until("nor shows it", || fetched(&network, net, &root).code != 0);
}
