//! ROUTE-REFRESH: asking for all routes, and where the answer begins and ends (RFC 2918, 7313).

use model::Family;

use crate::frame::{self, Kind};
use crate::notification::{Code, Notification};
use crate::open;
use crate::wire::Reader;

/// What is said of a refresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refresh {
    /// Send me all routes again.
    Request,
    /// All routes follow: whatever is not among them is gone (BoRR).
    Begin,
    /// That was all (EoRR).
    End,
}

impl Refresh {
    /// The message.
    pub fn compose(self, family: Family) -> Vec<u8> {
        let (afi, safi) = open::numbers(family);
        let [high, low] = afi.to_be_bytes();
        let subtype = match self {
            Self::Request => 0,
            Self::Begin => 1,
            Self::End => 2,
        };
        frame::compose(Kind::Refresh, &[high, low, subtype, safi])
    }

    /// From the body of a message; `None` for families and kinds that mean nothing here, which are to
    /// be ignored.
    ///
    /// # Errors
    /// What to tell the other side of a message of another length (RFC 7313 section 5), if it knows
    /// that code; else the message is to be ignored.
    pub fn parse(body: &[u8]) -> Result<Option<(Self, Family)>, Notification> {
        let mut reader = Reader(body);
        let (Some(afi), Some([subtype, safi]), true) =
            (reader.u16(), reader.array(), reader.is_empty())
        else {
            let shown = body.get(..body.len().min(64)).unwrap_or_default();
            return Err(Notification::with(Code::RefreshLength, shown));
        };
        let kind = match subtype {
            0 => Self::Request,
            1 => Self::Begin,
            2 => Self::End,
            _ => return Ok(None),
        };
        Ok(open::family(afi, safi).map(|family| (kind, family)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for kind in [Refresh::Request, Refresh::Begin, Refresh::End] {
            for family in Family::ALL {
                let bytes = kind.compose(family);
                assert_eq!(Refresh::parse(&bytes[frame::HEADER_BYTES..]), Ok(Some((kind, family))));
            }
        }
        assert_eq!(Refresh::parse(&[0, 1, 3, 1]), Ok(None), "a kind of the future");
        assert_eq!(Refresh::parse(&[0, 25, 0, 70]), Ok(None), "a family of others");
        assert_eq!(Refresh::parse(&[0, 1, 0, 1, 0]).unwrap_err().code, Code::RefreshLength);
    }
}
