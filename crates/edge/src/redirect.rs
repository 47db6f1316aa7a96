//! Clients that are sent to another node, and other nodes named beside content: what `steer` decides,
//! in HTTP.
//!
//! Of a project that sends clients on, `avoid=NODE,NODE` in the query and the field `Cacheboy-Avoid`
//! are for edges alone: neither is part of a key, nor do masters or other nodes see them.

use std::sync::Arc;

use http::header::{self, HeaderName};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Response, StatusCode, Uri};
use http_cache::{CacheStatus, Target, key};
use model::Name;
use serve::{Body, Client};
use steer::redirect::{AVOID_MAX, Circumstances, Decision, Stay, Why};
use store::Key;

use crate::answers;
use crate::host::{host_of, port_of};
use crate::project::Project;
use crate::state::Edge;
use crate::visitor::Visitor;

/// Names nodes that the client cannot use; in an answer, why it came from such a node all the same.
const AVOID_FIELD: HeaderName = HeaderName::from_static("cacheboy-avoid");
/// The same in a query.
const AVOID_PARAMETER: &str = "avoid=";

/// Fields that an answer gets beside its own.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    note: Option<HeaderValue>,
    links: Vec<HeaderValue>,
}

/// A client that is to be sent elsewhere, or fields for its answer. Takes out of the request what is for
/// edges alone.
pub(crate) async fn look(
    edge: &Edge,
    project: &Arc<Project>,
    visitor: Visitor,
    parts: &mut Parts,
) -> Result<Beside, Response<Body>> {
    let avoided = if project.redirects() { take_avoided(parts) } else { Vec::new() };
    let mut beside = Beside::default();
    let is_reading = parts.method == Method::GET || parts.method == Method::HEAD;
    let Some(view) = edge.steering.view().filter(|_| is_reading) else { return Ok(beside) };
    // What is refused here is no path either: behind a name it would be a part of that (`*`, `@b`).
    let Ok(target) = Target::of(&parts.uri) else { return Ok(beside) };
    let visit = visitor.visit(edge, project, &view);
    let avoid: Vec<&str> = avoided.iter().map(String::as_str).collect();
    let host = host_of(parts.version, &parts.uri, &parts.headers).unwrap_or_default();
    let is_fixed = project.is_of_node(host);
    let with = Circumstances { avoid: &avoid, is_fixed, is_spent: edge.bill.is_spent() };
    let way = Way { project, client: visitor.client, port: port_of(host), uri: &parts.uri };
    match view.steering.decide(&visit, &with) {
        Decision::Redirect(node, why) => {
            if let Some(location) = way.to(node)
                && (!why.is_for_large() || is_large(edge, project, target, parts).await)
            {
                return Err(sent_on(edge, project, &parts.method, location, why));
            }
        }
        Decision::Serve(stay) if !avoid.is_empty() && stay != Stay::Belongs => {
            beside.note = Some(HeaderValue::from_static(stay.as_str()));
        }
        Decision::Serve(_) => {}
    }
    for (rank, node) in (1..).zip(view.steering.alternates(&visit, &avoid)) {
        let country = view.steering.map().map.nodes.get(node).and_then(|node| node.country);
        beside.links.extend(way.link(node, rank, country));
    }
    Ok(beside)
}

impl Beside {
    /// Adds them; the links to content alone.
    pub(crate) fn add<T>(self, response: &mut Response<T>) {
        let is_content = [StatusCode::OK, StatusCode::PARTIAL_CONTENT].contains(&response.status());
        let headers = response.headers_mut();
        headers.extend(self.note.map(|note| (AVOID_FIELD, note)));
        if is_content {
            self.links.into_iter().for_each(|link| _ = headers.append(header::LINK, link));
        }
    }
}

/// The same object at other nodes.
struct Way<'a> {
    project: &'a Project,
    client: Client,
    /// With its colon; empty when the client named none.
    port: &'a str,
    uri: &'a Uri,
}

impl Way<'_> {
    fn url(&self, node: &Name) -> String {
        let scheme = if self.client.is_secure { "https" } else { "http" };
        let path = self.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        format!("{scheme}://{node}.{}{}{path}", self.project.steered_name(), self.port)
    }

    fn to(&self, node: &Name) -> Option<HeaderValue> {
        HeaderValue::try_from(self.url(node)).ok()
    }

    /// RFC 6249 section 3.
    fn link(
        &self,
        node: &Name,
        rank: u32,
        country: Option<model::CountryCode>,
    ) -> Option<HeaderValue> {
        let geo = country.map(|country| format!("; geo={}", country.as_str().to_ascii_lowercase()));
        let link =
            format!("<{}>; rel=duplicate; pri={rank}{}", self.url(node), geo.unwrap_or_default());
        HeaderValue::try_from(link).ok()
    }
}

/// Whether what is asked for is held, or a part of it, and known to be large enough.
async fn is_large(edge: &Edge, project: &Arc<Project>, target: Target, parts: &Parts) -> bool {
    let target = project.reduce(target);
    let base = Key(key(&project.name, &target));
    let found = edge.find(project, &target, base, &parts.headers).await;
    found.object.is_some_and(|object| {
        object.head.status == StatusCode::OK && object.rep.length() >= project.redirect_above()
    })
}

fn sent_on(
    edge: &Edge,
    project: &Project,
    method: &Method,
    location: HeaderValue,
    why: Why,
) -> Response<Body> {
    project.count_redirect(why);
    let mut response = answers::text(StatusCode::FOUND, "another node has this for you");
    response.headers_mut().insert(header::LOCATION, location);
    CacheStatus::default().with_detail(why.as_str()).add(response.headers_mut(), &edge.me);
    if *method == Method::HEAD {
        *response.body_mut() = Body::empty();
    }
    response
}

/// Takes the nodes that a client cannot use out of its request: names, of which as many count as one
/// may give.
fn take_avoided(parts: &mut Parts) -> Vec<String> {
    let mut names = Vec::new();
    for field in parts.headers.get_all(AVOID_FIELD) {
        add_names(&mut names, field.to_str().unwrap_or_default());
    }
    parts.headers.remove(AVOID_FIELD);
    if let Some(uri) = without_parameter(&parts.uri, |value| add_names(&mut names, value)) {
        parts.uri = uri;
    }
    names
}

fn add_names(names: &mut Vec<String>, list: &str) {
    let list = list.replace("%2C", ",").replace("%2c", ",");
    let room = AVOID_MAX.saturating_sub(names.len());
    let each = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.extend(each.take(room).map(str::to_owned));
}

/// The target without the parameter, whose values are told; `None` when it has none.
fn without_parameter(uri: &Uri, mut tell: impl FnMut(&str)) -> Option<Uri> {
    let query = uri.query().filter(|query| query.contains(AVOID_PARAMETER))?;
    let mut found = false;
    let mut left = String::new();
    for parameter in query.split('&') {
        if let Some(value) = parameter.strip_prefix(AVOID_PARAMETER) {
            found = true;
            tell(value);
            continue;
        }
        left.push(if left.is_empty() { '?' } else { '&' });
        left.push_str(parameter);
    }
    if !found {
        return None;
    }
    let mut parts = uri.clone().into_parts();
    let path = PathAndQuery::try_from(format!("{}{left}", uri.path())).ok()?;
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_to_avoid_are_taken_out_wherever_they_stand() {
        let nine = "/a?avoid=1,2,3,4,5,6,7,8,9";
        for (target, fields, left, names) in [
            ("/a", &[][..], "/a", ""),
            ("/a?", &[], "/a?", ""),
            ("/a?avoid=b", &[], "/a", "b"),
            ("/a?avoid=b,c", &[], "/a", "b c"),
            ("/a?avoid=b%2Cc%2cd", &[], "/a", "b c d"),
            ("/a?avoid=", &[], "/a", ""),
            ("/a?avoid=b&x=1", &[], "/a?x=1", "b"),
            ("/a?x=1&avoid=b", &[], "/a?x=1", "b"),
            ("/a?x=1&avoid=b&y=avoid=2", &[], "/a?x=1&y=avoid=2", "b"),
            ("/a?avoid=b&avoid=c", &[], "/a", "b c"),
            ("/a?xavoid=b&avoid", &[], "/a?xavoid=b&avoid", ""),
            ("/avoid=b?c", &[], "/avoid=b?c", ""),
            ("http://h.example:81/a?avoid=b", &[], "http://h.example:81/a", "b"),
            ("/a", &["b, c", "d"], "/a", "b c d"),
            ("/a?avoid=c", &["b"], "/a", "b c"),
            (nine, &[], "/a", "1 2 3 4 5 6 7 8"),
            (nine, &["b"], "/a", "b 1 2 3 4 5 6 7"),
        ] {
            let mut request = http::Request::get(target);
            for field in fields {
                request = request.header(AVOID_FIELD, *field);
            }
            let (mut parts, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(take_avoided(&mut parts).join(" "), names, "{target} {fields:?}");
            assert_eq!(parts.uri.to_string(), left);
            assert!(parts.headers.is_empty());
        }
    }
}
