//! `Content-Type` by file extension: a small table of what download trees hold.
//!
//! Compressed files are named by what they are (`application/gzip`), never by `Content-Encoding`:
//! a mirror hands out the very bytes, and a client must not unpack them on the way.

/// What a file is when its extension says nothing.
const UNKNOWN: &str = "application/octet-stream";

/// Extension (lower case) and media type, sorted by extension.
const TYPES: &[(&[u8], &str)] = &[
    (b"7z", "application/x-7z-compressed"),
    (b"apk", "application/vnd.android.package-archive"),
    (b"asc", "text/plain; charset=utf-8"),
    (b"bz2", "application/x-bzip2"),
    (b"css", "text/css; charset=utf-8"),
    (b"deb", "application/vnd.debian.binary-package"),
    (b"dmg", "application/x-apple-diskimage"),
    (b"exe", "application/vnd.microsoft.portable-executable"),
    (b"gif", "image/gif"),
    (b"gz", "application/gzip"),
    (b"htm", "text/html; charset=utf-8"),
    (b"html", "text/html; charset=utf-8"),
    (b"iso", "application/x-iso9660-image"),
    (b"jar", "application/java-archive"),
    (b"jpg", "image/jpeg"),
    (b"js", "text/javascript; charset=utf-8"),
    (b"json", "application/json"),
    (b"md5", "text/plain; charset=utf-8"),
    (b"mp4", "video/mp4"),
    (b"msi", "application/x-msi"),
    (b"pdf", "application/pdf"),
    (b"png", "image/png"),
    (b"rpm", "application/x-rpm"),
    (b"sha256", "text/plain; charset=utf-8"),
    (b"sig", "application/pgp-signature"),
    (b"svg", "image/svg+xml"),
    (b"tar", "application/x-tar"),
    (b"tgz", "application/gzip"),
    (b"torrent", "application/x-bittorrent"),
    (b"txt", "text/plain; charset=utf-8"),
    (b"wasm", "application/wasm"),
    (b"webm", "video/webm"),
    (b"webp", "image/webp"),
    (b"xml", "application/xml"),
    (b"xz", "application/x-xz"),
    (b"zip", "application/zip"),
    (b"zst", "application/zstd"),
];

/// The media type for a file of that name.
pub fn content_type(file_name: &[u8]) -> &'static str {
    let mut parts = file_name.rsplitn(2, |b| *b == b'.');
    let (extension, stem) = (parts.next().unwrap_or_default(), parts.next());
    if stem.is_none() {
        return UNKNOWN;
    }
    let extension = extension.to_ascii_lowercase();
    TYPES
        .binary_search_by(|(known, _)| (*known).cmp(extension.as_slice()))
        .ok()
        .and_then(|at| TYPES.get(at))
        .map_or(UNKNOWN, |(_, media)| media)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_found_whole() {
        assert!(TYPES.is_sorted_by(|a, b| a.0 < b.0));
        for (extension, media) in TYPES {
            let name = [b"file.".as_slice(), extension].concat();
            assert_eq!(content_type(&name), *media);
        }
    }

    #[test]
    fn names_without_a_known_extension_are_plain_bytes() {
        let cases: &[(&[u8], &str)] = &[
            (b"README", UNKNOWN),
            (b"zip", UNKNOWN),
            (b"vlc-3.0.20.unknown", UNKNOWN),
            (b"", UNKNOWN),
            (b"vlc.tar.xz", "application/x-xz"),
            (b"SETUP.EXE", "application/vnd.microsoft.portable-executable"),
            (b"index.html", "text/html; charset=utf-8"),
            (b"latin\xe9.iso", "application/x-iso9660-image"),
        ];
        for (name, media) in cases {
            assert_eq!(content_type(name), *media, "{}", String::from_utf8_lossy(name));
        }
    }
}
