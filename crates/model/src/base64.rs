//! Base64 with padding (RFC 4648 section 4).

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// `bytes` as text.
pub fn encode(bytes: &[u8]) -> String {
    let mut out = String::new();
    for group in bytes.chunks(3) {
        let word = (0..3).fold(0u32, |word, i| {
            word << 8 | group.get(i).copied().map(u32::from).unwrap_or_default()
        });
        for (i, shift) in [18u32, 12, 6, 0].into_iter().enumerate() {
            let sextet = (word >> shift & 63) as usize;
            let letter = ALPHABET.get(sextet).copied().unwrap_or(b'=');
            out.push(char::from(if i > group.len() { b'=' } else { letter }));
        }
    }
    out
}

/// The bytes that `text` stands for, white space in it left out; `None` when it is not base64, in
/// the one spelling that [`encode`] gives.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let letters: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let mut groups = letters.chunks(4).peekable();
    while let Some(group) = groups.next() {
        let padding = group.iter().rev().take_while(|letter| **letter == b'=').count();
        if group.len() != 4 || padding > 2 || (padding > 0 && groups.peek().is_some()) {
            return None;
        }
        let word = group.iter().try_fold(0u32, |word, letter| {
            let sextet = match letter {
                b'=' => 0,
                _ => ALPHABET.iter().position(|known| known == letter)?,
            };
            Some(word << 6 | u32::try_from(sextet).ok()?)
        })?;
        let [_, bytes @ ..] = word.to_be_bytes();
        let (kept, cut) = bytes.split_at_checked(3usize.saturating_sub(padding))?;
        if cut.iter().any(|byte| *byte != 0) || group.iter().rev().skip(padding).any(|l| *l == b'=')
        {
            return None;
        }
        out.extend_from_slice(kept);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_as_rfc_4648_section_10_shows() {
        let cases = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, encoded) in cases {
            assert_eq!(encode(plain.as_bytes()), encoded);
            assert_eq!(decode(encoded).as_deref(), Some(plain.as_bytes()));
        }
        assert_eq!(decode("Zm9v\n YmFy\n").as_deref(), Some(&b"foobar"[..]));
        assert_eq!(decode(&encode(&[0xff, 0xfe, 0xfb])), Some(vec![0xff, 0xfe, 0xfb]));
    }

    #[test]
    fn other_spellings_are_refused() {
        for text in ["Z", "Zg", "Zg=", "Zg==Zg==", "Zh==", "Zm9=", "====", "Z===", "Z=g=", "Zg-_"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
