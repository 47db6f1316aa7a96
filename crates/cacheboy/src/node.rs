//! `cacheboy node drain|undrain|status`: one node, by default this host, which needs nobody else for it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use serde_json::{Value, json};

use crate::cli::{NodeArgs, NodeCommand, NodeTarget};
use crate::nodes::Node;
use crate::out::say;
use crate::{explain, roles};

/// Between the two looks from which the bandwidth comes.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Does what is asked and prints what the node said.
pub(crate) async fn run(args: NodeArgs) -> Result<ExitCode> {
    match args.command {
        NodeCommand::Drain { target, reason, time } => {
            let node = node(&target)?;
            let receipt = node.post("/drain", &json!({ "reason": reason, "for_s": time })).await;
            let receipt =
                receipt.map_err(|why| anyhow!("{} is not drained: {why}", node.shown()))?;
            if target.json {
                say!("{receipt:#}")?;
            } else {
                let (name, drain) = (word(&receipt, "node"), &receipt["drain"]);
                say!("{name}: drained since {}, {}", word(drain, "since"), until(drain))?;
            }
        }
        NodeCommand::Undrain { target } => {
            let node = node(&target)?;
            let receipt = node.post("/undrain", &json!({})).await;
            let receipt =
                receipt.map_err(|why| anyhow!("{} is not undrained: {why}", node.shown()))?;
            if target.json {
                say!("{receipt:#}")?;
            } else {
                say!("{}: up", word(&receipt, "node"))?;
            }
        }
        NodeCommand::Status { target } => status(&node(&target)?, target.json).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The node that is meant.
fn node(target: &NodeTarget) -> Result<Node> {
    if let Some(admin) = &target.node {
        return Ok(Node::at(admin));
    }
    let config = target.config.as_deref().map(roles::load).transpose()?;
    let own = config.as_ref().filter(|config| config.edge.is_some());
    let own = own.map(|config| (config.host.name.clone(), config.admin.clone()));
    let Some(name) =
        target.name.as_ref().filter(|name| own.as_ref().is_none_or(|own| own.0 != **name))
    else {
        return match own {
            Some(own) => Ok(Node::own(&own)),
            None => bail!("this host is no edge: name the node that is meant"),
        };
    };
    let map = match (&config, &target.maps) {
        (Some(config), _) => explain::running_map(config)?.map,
        (None, Some(dir)) => roles::accepted(nodemap::admin::load_dir(dir))?,
        (None, None) => bail!("give --config or --maps, which say where {name} is reached"),
    };
    match map.nodes.get(name) {
        Some(node) => Ok(Node::of_map(name, node, None)),
        None => bail!("there is no node {name} in the maps"),
    }
}

/// Prints what a node is doing.
async fn status(node: &Node, is_json: bool) -> Result<()> {
    let look = || async {
        node.status().await.map_err(|why| anyhow!("nothing is known of {}: {why}", node.shown()))
    };
    let sent = |answer: &Value| answer["edge"]["sent_bytes"].as_u64().unwrap_or_default();
    let before = sent(&look().await?);
    tokio::time::sleep(LOOK_AGAIN_AFTER).await;
    let answer = look().await?;
    let (edge, process) = (&answer["edge"], &answer["process"]);
    let drain = &edge["drain"];
    let state = match (process["leaving"].as_bool(), drain.is_null()) {
        (Some(true), _) => "leaving",
        (_, false) => "drained",
        (_, true) => "up",
    };
    // Over the pause and the little that the second look took.
    let bits_per_s = sent(&answer).saturating_sub(before).saturating_mul(8);
    if is_json {
        let document = json!({
            "format": 1, "node": edge["node"], "state": state, "since": process["since"],
            "drain": drain, "connections": edge["connections"], "sent_bits_per_s": bits_per_s,
            "bill": edge["bill"],
        });
        say!("{document:#}")?;
        return Ok(());
    }
    say!("node         {}", word(edge, "node"))?;
    match drain.is_null() {
        true => say!("state        {state} since {}", word(process, "since"))?,
        false => say!("state        {state} since {}, {}", word(drain, "since"), until(drain))?,
    }
    say!("connections  {}", edge["connections"])?;
    say!("sending      {}.{} Mbit/s", bits_per_s / 1_000_000, bits_per_s / 100_000 % 10)?;
    Ok(())
}

/// How long a node is drained, and why.
fn until(drain: &Value) -> String {
    let until = match drain["until"].as_str() {
        Some(until) => format!("until {until}"),
        None => "until it is undrained".to_owned(),
    };
    match word(drain, "reason") {
        "" => until,
        reason => format!("{until}: {reason}"),
    }
}

fn word<'a>(answer: &'a Value, key: &str) -> &'a str {
    answer[key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_and_why_is_one_line() {
        for (drain, line) in [
            (json!({ "until": null, "reason": "" }), "until it is undrained"),
            (
                json!({ "until": "2026-12-01 00:00:00Z", "reason": "new disk" }),
                "until 2026-12-01 00:00:00Z: new disk",
            ),
        ] {
            assert_eq!(until(&drain), line);
        }
    }
}
