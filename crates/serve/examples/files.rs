//! Serves the files of a folder as an edge serves what it holds, without the edge: small ones from
//! memory, the others as parts of files. For profiles of the wire and for counting what idle
//! connections cost.
//!
//! `files ADDRESS FOLDER`

#![allow(clippy::expect_used, reason = "a measurement that cannot go on fails")]

use std::collections::HashMap;
use std::fs::{self, File};
use std::sync::Arc;

use bytes::Bytes;
use hyper::{Request, Response, StatusCode};
use rt::Shutdown;
use serve::{Body, Client, Counters, FileRange, Handler, Limits, RequestBody};
use tokio::net::TcpListener;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Files up to this size are in memory.
const MEMORY_BYTES_MAX: u64 = 64 * 1024;

enum Held {
    Memory(Bytes),
    File(Arc<File>, u64),
}

/// By path.
struct Folder(HashMap<String, Held>);

impl Handler for Folder {
    type Visitor = Client;

    fn greet(&self, client: Client) -> Client {
        client
    }

    async fn handle(&self, request: Request<RequestBody>, _: &Client) -> Response<Body> {
        let body = match self.0.get(request.uri().path()) {
            Some(Held::Memory(bytes)) => Body::bytes(bytes.clone()),
            Some(Held::File(file, len)) => Body::file(FileRange::new(Arc::clone(file), 0, *len)),
            None => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::NOT_FOUND;
                return response;
            }
        };
        Response::new(body)
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let mut words = std::env::args().skip(1);
    let (Some(address), Some(folder)) = (words.next(), words.next()) else {
        eprintln!("usage: files ADDRESS FOLDER");
        return;
    };
    let held = fs::read_dir(&folder).expect("a folder").map(|entry| {
        let path = entry.expect("a readable folder").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let len = fs::metadata(&path).expect("a file").len();
        let held = if len <= MEMORY_BYTES_MAX {
            Held::Memory(fs::read(&path).expect("a readable file").into())
        } else {
            Held::File(Arc::new(File::open(&path).expect("a readable file")), len)
        };
        (format!("/{name}"), held)
    });
    let folder = Arc::new(Folder(held.collect()));
    sys::limits::raise_open_files().expect("a limit");
    let listener = TcpListener::bind(&address).await.expect("a free address");
    let counters = Arc::<Counters>::default();
    serve::http(vec![listener.into()], folder, Limits::default(), counters, Shutdown::default())
        .await;
}
