//! What a query asks, in words, for logs. Reads the message once more: so whoever logs nothing, or few
//! queries only, pays nothing for the others.

use ipnet::IpNet;

use crate::query::{self, Fault};
use crate::wire::{rtype, text_of};

/// A query in words. What cannot be read of it is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// The name in lower case, as people write it, with the final point (RFC 1035 section 5.1).
    pub name: Option<String>,
    /// The registered name of the type, or `TYPE` and its number.
    pub rtype: Option<String>,
    /// The client's network (RFC 7871), if the query has one that says more than that it wants none.
    pub subnet: Option<IpNet>,
}

impl Described {
    /// That of a message.
    pub fn of(message: &[u8]) -> Self {
        match query::read(message) {
            Ok(query) => Self {
                name: Some(text_of(query.name.as_bytes())),
                rtype: Some(rtype::word(query.qtype)),
                subnet: query.head.edns.and_then(|edns| edns.subnet?.network()),
            },
            Err(Fault::Refuse(head, _)) => {
                let question = query::read_question_of(&head);
                Self {
                    name: question.as_ref().map(|(name, _)| text_of(name.as_bytes())),
                    rtype: question.map(|(_, qtype)| rtype::word(qtype)),
                    subnet: None,
                }
            }
            Err(Fault::Drop(_) | Fault::NoQuestion(_)) => Self::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_described_as_far_as_it_can_be_read() {
        let head = [0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        let question = b"\x04FiLe\x03c.n\x07example\0\x00\x41\x00\x01";
        let subnet = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 11, 0, 8, 0, 7, 0, 1, 24, 0, 192, 0, 2];
        let whole = [&head[..], question, &subnet].concat();
        let described = Described {
            name: Some(r"file.c\.n.example.".into()),
            rtype: Some("HTTPS".into()),
            subnet: Some("192.0.2.0/24".parse().unwrap()),
        };
        assert_eq!(Described::of(&whole), described);
        // A subnet with bits behind its length: refused, but its question is known.
        let mut bad = whole.clone();
        *bad.last_mut().unwrap() = 2;
        bad[whole.len() - 5] = 23;
        bad[whole.len() - 1] = 3;
        assert_eq!(Described::of(&bad), Described { subnet: None, ..described });
        assert_eq!(Described::of(&whole[..11]), Described::default());
        let mut response = whole;
        response[2] |= 0x80;
        assert_eq!(Described::of(&response), Described::default());
    }
}
