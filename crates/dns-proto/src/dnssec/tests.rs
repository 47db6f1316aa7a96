//! Keys and signatures of the RFCs, and what a zone does with several keys.

use model::{HostName, Now, base64};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED, ED25519, UnparsedPublicKey};

use super::canonical::{Set, SetReader};
use super::signer::{Order, push_fixed};
use super::window::Window;
use super::*;
use crate::asker::Transport;
use crate::wire::wire_name;

/// RFC 6605 section 6.1.
const P256_PRIVATE: &str = "Private-key-format: v1.2\n\
    Algorithm: 13 (ECDSAP256SHA256)\n\
    PrivateKey: GU6SnQ/Ou+xC5RumuIUIuJZteXT2z0O/ok1s38Et6mQ=\n";
const P256_PUBLIC: &str = "; This is a key-signing key, keyid 55648, for example.net.\n\
    example.net. 3600 IN DNSKEY 257 3 13 GojIhhXUN/u4v54ZQqGSnyhWJwaubCvTmeexv7bR6edb\
    krSqQpF64cYbcB7wNcP+e+MAnLr+Wi9xMWyQLc8NAA== ;{id = 55648}\n";
const P256_SIGNATURE: &str = "qx6wLYqmh+l9oCKTN6qIc+bw6ya+KJ8oMz0YP107epXA\
    yGmt+3SNruPFKG7tZoLBLlUzGGus7ZwmwWep666VCw==";

/// RFC 8080 section 6.1, with erratum 4935.
const ED_PRIVATE: &str = "Private-key-format: v1.2\n\
    Algorithm: 15 (ED25519)\n\
    PrivateKey: ODIyNjAzODQ2MjgwODAxMjI2NDUxOTAyMDQxNDIyNjI=\n";
const ED_PUBLIC: &str =
    "example.com. 3600 IN DNSKEY 257 3 15 l02Woi0iS8Aa25FQkUd9RMzZHJpBoRQwAQEX1SxZJA4=\n";
const ED_SIGNATURE: &str = "oL9krJun7xfBOIWcGHi7mag5/hdZrKWw15jPGrHpjQeRAvTdszaPD+QLs3f\
    x8A4M3e23mRZ9VrbpMngwcrqNAg==";

const NOW: Now = Now { mono_ns: 1_000_000_000_000, wall_ms: 1_800_000_000_000 };
const DAY_S: u32 = 86_400;

fn host(name: &str) -> HostName {
    name.parse().unwrap()
}

fn read(zone: &str, private: &str, public: Option<&str>) -> Result<Key, KeyError> {
    Key::read(&host(zone), private, public, &SystemRandom::new())
}

fn p256() -> Key {
    read("example.net", P256_PRIVATE, Some(P256_PUBLIC)).unwrap()
}

fn ed25519() -> Key {
    read("example.com", ED_PRIVATE, Some(ED_PUBLIC)).unwrap()
}

fn generate(algorithm: Algorithm) -> Key {
    let der = Key::generate(algorithm, &SystemRandom::new()).unwrap();
    read("cdn.example", &pem(&der), None).unwrap()
}

fn pem(der: &[u8]) -> String {
    let body = base64::encode(der);
    format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A set of one record in the reader, as if a message had it.
fn one_record(owner: &str, rtype: u16, data: &[u8]) -> (SetReader, Set) {
    let mut message = wire_name(&host(owner));
    message.extend(rtype.to_be_bytes());
    message.extend(b"\0\x01\0\0\x0e\x10\0");
    message.push(u8::try_from(data.len()).unwrap());
    message.extend(data);
    let mut reader = SetReader::default();
    let set = reader.read(&message, 0).unwrap();
    (reader, set)
}

/// What the key signs for the set, with the times as the RFCs print them.
fn to_sign(key: &Key, zone: &str, set: (SetReader, Set), times: [u64; 2]) -> Vec<u8> {
    let (reader, set) = set;
    let window = Window { expiration_s: times[0], begin_s: times[1] + 3600, end_s: 0 };
    let mut out = Vec::new();
    push_fixed(set, &reader.owner, key, window, &mut out);
    out.extend(wire_name(&host(zone)));
    out.extend(&reader.records);
    out
}

#[test]
fn the_key_and_signature_of_rfc_6605() {
    let key = p256();
    assert_eq!((key.tag(), key.algorithm()), (55648, Algorithm::EcdsaP256Sha256));
    assert_eq!(
        hex(&key.ds(&host("example.net"))),
        "d9600d02b4c8c1fe2e7477127b27115656ad6256f424625bf5c1e2770ce6d6e37df61d17"
    );
    let set = one_record("www.example.net", 1, &[192, 0, 2, 1]);
    // 20100909100439 and 20100812100439.
    let message = to_sign(&key, "example.net", set, [1_284_026_679, 1_281_607_479]);
    let point = [&[4], &key.dnskey()[4..]].concat();
    let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
    public.verify(&message, &base64::decode(P256_SIGNATURE).unwrap()).unwrap();
    public.verify(&message, &key.sign(&message, &SystemRandom::new()).unwrap()).unwrap();
}

#[test]
fn the_key_and_signature_of_rfc_8080() {
    let key = ed25519();
    assert_eq!((key.tag(), key.algorithm()), (3613, Algorithm::Ed25519));
    assert_eq!(
        hex(&key.ds(&host("example.com"))),
        "0e1d0f023aa5ab37efce57f737fc1627013fee07bdf241bd10f3b1964ab55c78e79a304b"
    );
    let set = one_record("example.com", 15, b"\0\x0a\x04mail\x07example\x03com\0");
    let message = to_sign(&key, "example.com", set, [1_440_021_600, 1_438_207_200]);
    let signature = key.sign(&message, &SystemRandom::new()).unwrap();
    assert_eq!(base64::encode(&signature), ED_SIGNATURE);
}

#[test]
fn key_files_that_are_not_taken_say_why() {
    let mismatch = P256_PRIVATE.replace("GU6S", "GU6T");
    let zone_key = ED_PUBLIC.replace("257", "256");
    let other_algorithm = ED_PRIVATE.replace("15 (ED25519)", "8 (RSASHA256)");
    let cases = [
        (read("example.net", P256_PRIVATE, None), KeyError::NoPublic),
        (read("example.net", &mismatch, Some(P256_PUBLIC)), KeyError::Mismatch),
        (read("example.net", P256_PRIVATE, Some(ED_PUBLIC)), KeyError::Zone("example.com.".into())),
        (read("example.com", ED_PRIVATE, Some("; nothing\n")), KeyError::Public),
        (read("example.com", ED_PRIVATE, Some(&zone_key)), KeyError::Flags(256)),
        (read("example.com", &other_algorithm, None), KeyError::Algorithm("8 (RSASHA256)".into())),
        (
            read("example.com", &ED_PRIVATE.replace("ODIy", "ODI"), None),
            KeyError::Field("PrivateKey"),
        ),
        (read("example.com", "-----BEGIN EC PRIVATE KEY-----\n", None), KeyError::Form),
        (read("example.com", "-----BEGIN ENCRYPTED PRIVATE KEY-----\n", None), KeyError::Encrypted),
        (read("example.com", "-----BEGIN PRIVATE KEY-----\nAA", None), KeyError::Field("base64")),
    ];
    for (read, error) in cases {
        assert_eq!(read.unwrap_err(), error);
    }
    let no_key = read("example.com", &pem(b"not a key"), None).unwrap_err();
    assert!(matches!(no_key, KeyError::Algorithm(_)), "{no_key}");
}

#[test]
fn an_ed25519_key_needs_no_second_file_and_shows_nothing_secret() {
    let key = read("example.com", ED_PRIVATE, None).unwrap();
    assert_eq!(key.dnskey(), ed25519().dnskey());
    assert_eq!(format!("{key:?}"), "ED25519 3613");
}

#[test]
fn a_zone_signs_with_its_active_keys_and_with_each_algorithm() {
    use Duty::{Active, Published, Withdrawn};
    let zone = host("cdn.example");
    let signing = |duties: &[(Algorithm, Duty)]| {
        let keys: Vec<_> = duties.iter().map(|(a, duty)| (generate(*a), *duty)).collect();
        let tags: Vec<u16> = keys.iter().map(|(key, _)| key.tag()).collect();
        let zone = ZoneKeys::new(&zone, keys, Cds::Off, DAY_S).unwrap();
        let signs: Vec<u16> = zone.signing().map(Key::tag).collect();
        tags.iter().map(|tag| signs.contains(tag)).collect::<Vec<_>>()
    };
    let (p256, ed) = (Algorithm::EcdsaP256Sha256, Algorithm::Ed25519);
    assert_eq!(signing(&[(p256, Active), (p256, Published)]), [true, false]);
    assert_eq!(signing(&[(p256, Withdrawn), (p256, Active)]), [false, true]);
    // RFC 6840 section 5.11.
    assert_eq!(signing(&[(p256, Active), (ed, Published)]), [true, true]);
    assert_eq!(signing(&[(p256, Withdrawn), (ed, Active)]), [true, true]);
}

#[test]
fn keys_that_cannot_stand_together_are_refused() {
    let zone = host("example.com");
    let new = |keys| ZoneKeys::new(&zone, keys, Cds::Off, DAY_S).unwrap_err();
    assert_eq!(new(vec![(ed25519(), Duty::Published)]), ZoneKeysError::NoneActive);
    let twice = vec![(ed25519(), Duty::Active), (ed25519(), Duty::Published)];
    assert_eq!(new(twice), ZoneKeysError::SameTag(3613));
    let many = (0..5).map(|_| (ed25519(), Duty::Active)).collect();
    assert_eq!(new(many), ZoneKeysError::TooMany);
}

#[test]
fn the_parent_is_told_as_rfc_7344_and_rfc_8078_say() {
    let zone = host("cdn.example");
    let of = |cds| {
        let (old, new) = (generate(Algorithm::Ed25519), generate(Algorithm::Ed25519));
        let kept = (new.ds(&zone), new.dnskey().to_vec());
        let keys = vec![(old, Duty::Withdrawn), (new, Duty::Active)];
        (ZoneKeys::new(&zone, keys, cds, DAY_S).unwrap(), kept)
    };
    let (off, _) = of(Cds::Off);
    assert_eq!((off.cdss(&zone).len(), off.cdnskeys().len(), off.dnskeys().len()), (0, 0, 2));
    let (publish, (ds, dnskey)) = of(Cds::Publish);
    assert_eq!((publish.cdss(&zone), publish.cdnskeys()), (vec![ds], vec![dnskey]));
    let (delete, _) = of(Cds::Delete);
    assert_eq!(delete.cdss(&zone), [[0, 0, 0, 0, 0]]);
    assert_eq!(delete.cdnskeys(), [[0, 0, 3, 0, 0]]);
}

/// A message with one A record of the question's name, and where the record begins.
fn answer(label: &str) -> (Vec<u8>, usize) {
    let mut message = vec![0; 12];
    message.push(u8::try_from(label.len()).unwrap());
    message.extend(label.bytes());
    message.extend(b"\x03cdn\x07example\0\0\x01\0\x01");
    let from = message.len();
    message.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
    (message, from)
}

fn pen() -> Pen {
    Pen::new(Signer::with_budget([7; 16], SystemRandom::new(), 100).into())
}

const ORDER: Order = Order { now: NOW, transport: Transport::Udp, name_made_up: false };

#[test]
fn a_signature_is_made_once_a_turn_and_holds() {
    let zone = host("cdn.example");
    let key = generate(Algorithm::EcdsaP256Sha256);
    let point = [&[4], &key.dnskey()[4..]].concat();
    let keys = ZoneKeys::new(&zone, vec![(key, Duty::Active)], Cds::Off, 4 * DAY_S).unwrap();
    let mut pen = pen();
    let mut sign = |now: Now| {
        let (mut message, from) = answer("A");
        let order = Order { now, ..ORDER };
        assert_eq!(pen.sign(&mut message, from, order, |_, _| Some(&keys)), Ok(1));
        (message.split_off(from + 16), pen.take_signed())
    };
    let (first, signed) = sign(NOW);
    assert_eq!(signed, Signed { made: 1, ..Signed::default() });
    let (again, signed) = sign(NOW);
    assert_eq!((&again, signed), (&first, Signed { found: 1, ..Signed::default() }));
    // Owner, type, class, TTL, length; data.
    let (head, data) = first.split_at(12);
    assert_eq!(head[..10], [0xc0, 0x0c, 0, 46, 0, 1, 0, 0, 0, 60]);
    assert_eq!(data[..8], [0, 1, 13, 3, 0, 0, 0, 60]);
    let (signed_data, signature) = data.split_at(18 + wire_name(&zone).len());
    let record = [&b"\x01a\x03cdn\x07example\0\0\x01\0\x01\0\0\0\x3c\0\x04"[..], &[192, 0, 2, 1]];
    let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
    public.verify(&[signed_data, &record.concat()].concat(), signature).unwrap();
    // A turn later it is another one.
    let (later, signed) = sign(NOW.plus_ms(86_400_000));
    assert_eq!(signed, Signed { made: 1, ..Signed::default() });
    assert_ne!(later, first);
}

#[test]
fn each_key_of_the_zone_signs_and_zones_without_keys_do_not() {
    let zone = host("cdn.example");
    let pair = vec![
        (generate(Algorithm::EcdsaP256Sha256), Duty::Active),
        (generate(Algorithm::Ed25519), Duty::Published),
    ];
    let keys = ZoneKeys::new(&zone, pair, Cds::Off, DAY_S).unwrap();
    let (mut message, from) = answer("A");
    assert_eq!(pen().sign(&mut message, from, ORDER, |_, _| Some(&keys)), Ok(2));
    let public = UnparsedPublicKey::new(&ED25519, &keys.signing().nth(1).unwrap().dnskey()[4..]);
    let data = &message[message.len() - 64 - wire_name(&zone).len() - 18..];
    let record = b"\x01a\x03cdn\x07example\0\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01";
    let (signed, signature) = data.split_at(data.len() - 64);
    public.verify(&[signed, record].concat(), signature).unwrap();

    let (mut message, from) = answer("A");
    let before = message.clone();
    assert_eq!(pen().sign(&mut message, from, ORDER, |_, _| None), Ok(0));
    assert_eq!(message, before);
}

#[test]
fn names_that_clients_think_up_are_signed_a_bounded_number_of_times_a_second() {
    let zone = host("cdn.example");
    let keys = vec![(generate(Algorithm::Ed25519), Duty::Active)];
    let keys = ZoneKeys::new(&zone, keys, Cds::Off, DAY_S).unwrap();
    let mut pen = pen();
    let mut sign = |i: u32, order: Order| {
        let (mut message, from) = answer(&format!("x{i}"));
        let made = pen.sign(&mut message, from, order, |_, _| Some(&keys)).is_ok();
        (made, pen.take_signed())
    };
    let made_up = Order { name_made_up: true, ..ORDER };
    let made = (0..120).filter(|i| sign(*i, made_up).0).count();
    assert_eq!(made, 100);
    let refused = sign(3000, made_up);
    assert_eq!(refused, (false, Signed { refused: 1, ..Signed::default() }));
    // What is there is given, other names are signed, and so are those of TCP.
    assert!(sign(99, made_up).0 && sign(3000, ORDER).0);
    assert!(sign(3000, Order { transport: Transport::Tcp, ..made_up }).0);
    let later = Order { now: NOW.plus_ms(20), ..made_up };
    assert_eq!(
        [sign(3001, later).0, sign(3002, later).0, sign(3003, later).0],
        [true, true, false]
    );
}
