//! Signatures: a query of another program, and what is wrong with others.

use super::*;
use crate::query;

/// As `dig -y hmac-sha256:transfer.example:MDEyMzQ1Njc4OWFiY2RlZg== static.example SOA` sent it.
const QUERY: &str = "76cf0120000100000000000206737461746963076578616d706c65000006000100002904d0000000\
                     000000087472616e73666572076578616d706c650000fa00ff00000000003d0b686d61632d736861\
                     3235360000006b0e4200012c0020865b66e2aaf7ea5f83d17a97e403453dc09bdcf60f872c46e97f\
                     d1b1f79447bd76cf00000000";
/// When it did.
const THEN_S: u64 = 0x6b0e_4200;

fn message() -> Vec<u8> {
    let digits: Vec<u8> =
        QUERY.bytes().map(|digit| char::from(digit).to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

pub(crate) fn key(algorithm: &str, secret: &str) -> TsigKey {
    let text = format!("key transfer.example {{ algorithm {algorithm}; secret {secret}; }};");
    TsigKey::read(&text).unwrap()
}

/// A query with its signature.
pub(crate) fn signed(key: &TsigKey, query: &[u8], now_s: u64) -> Vec<u8> {
    let rest = rest_of(0, &[]);
    let variables = Variables { time_s: now_s, fudge_s: FUDGE_S, rest: &rest };
    let mut signed = query.to_vec();
    variables.put(key, &mut signed);
    let mac = hmac::sign(&key.key, &signed);
    let mut message = query.to_vec();
    append((&key.name, key.algorithm.name()), &variables, mac.as_ref(), &mut message);
    message
}

fn place(message: &[u8]) -> usize {
    query::read(message).map(|query| query.tsig.unwrap()).unwrap_or_else(|_| panic!("no query"))
}

#[test]
fn a_query_of_another_program_is_judged() {
    let message = message();
    let at = place(&message);
    let ours = key("hmac-sha256", "MDEyMzQ1Njc4OWFiY2RlZg==");
    let judge = |message: &[u8], key: &TsigKey, now_s| {
        Signature::read(message, at).unwrap().judge(key, now_s)
    };
    for (late_s, judged) in [
        (0, Ok(())),
        (300, Ok(())),
        (-300, Ok(())),
        (301, Err(Fault::Time)),
        (-301, Err(Fault::Time)),
    ] {
        assert_eq!(
            judge(&message, &ours, THEN_S.saturating_add_signed(late_s)),
            judged,
            "{late_s}"
        );
    }
    let other = key("hmac-sha256", "MDEyMzQ1Njc4OWFiY2RlZw==");
    assert_eq!(judge(&message, &other, THEN_S), Err(Fault::Signature));
    // Any bit but those of the record's own head, and of the ID, which a forwarder may change.
    for byte in (2..at).chain(at + 46..message.len() - 6) {
        let mut changed = message.clone();
        changed[byte] ^= 1;
        let Some(signature) = Signature::read(&changed, at) else { continue };
        assert_eq!(signature.judge(&ours, THEN_S), Err(Fault::Signature), "byte {byte}");
    }
    let mut forwarded = message.clone();
    forwarded[0] ^= 0xff;
    assert_eq!(judge(&forwarded, &ours, THEN_S), Ok(()));
    for end in at..message.len() {
        assert!(Signature::read(&message[..end], at).is_none(), "{end}");
    }
    // Cut MACs are none.
    let mut short = message[..message.len() - 6].to_vec();
    short.truncate(short.len() - 16);
    short.extend(&message[message.len() - 6..]);
    let mac_bytes = at + 18 + 10 + 13 + 8;
    short[mac_bytes + 1] = 16;
    short[at + 18 + 9] -= 16;
    assert_eq!(judge(&short, &ours, THEN_S), Err(Fault::Signature));
}

#[test]
fn nothing_stands_behind_a_signature() {
    let mut message = message();
    message.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    message[11] = 3;
    assert!(query::read(&message).is_err());
}
