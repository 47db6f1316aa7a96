//! Where a client is: address family, AS number, country, continent, and the [`Location`] that
//! joins them with the prefix that decided.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both families, IPv4 first.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The family of `address`.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Length of an address in bits: 32 or 128.
    pub fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::V4 => "v4",
            Self::V6 => "v6",
        })
    }
}

/// An autonomous system number (RFC 6793), never 0: AS 0 is reserved (RFC 7607) and would make two
/// unknowns equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Asn(std::num::NonZeroU32);

impl Asn {
    /// The AS number `n`; `None` for 0.
    pub fn new(n: u32) -> Option<Self> {
        std::num::NonZeroU32::new(n).map(Self)
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for Asn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AS{}", self.0)
    }
}

impl From<Asn> for u32 {
    fn from(a: Asn) -> u32 {
        a.get()
    }
}

impl TryFrom<u32> for Asn {
    type Error = ParsePlaceError;
    fn try_from(n: u32) -> Result<Self, ParsePlaceError> {
        Self::new(n).ok_or(ParsePlaceError::Asn)
    }
}

impl FromStr for Asn {
    type Err = ParsePlaceError;
    /// Accepts `7545` and `AS7545`.
    fn from_str(s: &str) -> Result<Self, ParsePlaceError> {
        let digits = s.strip_prefix("AS").or_else(|| s.strip_prefix("as")).unwrap_or(s);
        digits.parse().ok().and_then(Self::new).ok_or(ParsePlaceError::Asn)
    }
}

/// Why a place was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParsePlaceError {
    /// Not an AS number.
    #[error("an AS number is a whole number from 1 to 4294967295")]
    Asn,
    /// Not a country code.
    #[error("a country is two capital letters (ISO 3166-1 alpha-2), for example AU")]
    Country,
    /// Not a continent code.
    #[error("a continent is one of AF AN AS EU NA OC SA")]
    Continent,
}

/// A country by its ISO 3166-1 alpha-2 code, in capitals.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CountryCode([u8; 2]);

impl CountryCode {
    /// The code as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("??")
    }

    /// The continent this country lies in by the usual table (GeoNames), for databases that give
    /// none; `None` for codes that are not a place.
    pub fn continent(self) -> Option<Continent> {
        COUNTRIES
            .iter()
            .find(|(_, list)| contains_code(list, self.0))
            .map(|(continent, _)| *continent)
    }
}

fn contains_code(list: &str, code: [u8; 2]) -> bool {
    list.as_bytes().chunks(3).any(|c| c.starts_with(&code))
}

impl FromStr for CountryCode {
    type Err = ParsePlaceError;
    fn from_str(s: &str) -> Result<Self, ParsePlaceError> {
        match *s.as_bytes() {
            [a, b] if a.is_ascii_uppercase() && b.is_ascii_uppercase() => Ok(Self([a, b])),
            _ => Err(ParsePlaceError::Country),
        }
    }
}

/// A continent by its two-letter code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Continent {
    /// Africa.
    Af,
    /// Antarctica.
    An,
    /// Asia.
    As,
    /// Europe.
    Eu,
    /// North America.
    Na,
    /// Oceania.
    Oc,
    /// South America.
    Sa,
}

impl Continent {
    /// All continents in the order of their codes.
    pub const ALL: [Self; 7] =
        [Self::Af, Self::An, Self::As, Self::Eu, Self::Na, Self::Oc, Self::Sa];

    /// The code as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Af => "AF",
            Self::An => "AN",
            Self::As => "AS",
            Self::Eu => "EU",
            Self::Na => "NA",
            Self::Oc => "OC",
            Self::Sa => "SA",
        }
    }
}

impl FromStr for Continent {
    type Err = ParsePlaceError;
    fn from_str(s: &str) -> Result<Self, ParsePlaceError> {
        Self::ALL.into_iter().find(|c| c.as_str() == s).ok_or(ParsePlaceError::Continent)
    }
}

impl fmt::Display for Continent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for CountryCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for CountryCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl TryFrom<String> for CountryCode {
    type Error = ParsePlaceError;
    fn try_from(s: String) -> Result<Self, ParsePlaceError> {
        s.parse()
    }
}

impl From<CountryCode> for String {
    fn from(c: CountryCode) -> Self {
        c.as_str().to_owned()
    }
}

/// What is known of a client address. Each piece may be unknown; unknown never equals unknown in
/// steering, because maps can only name values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Location {
    /// The widest prefix around the address inside which everything below is the same.
    pub prefix: IpNet,
    /// Origin AS of the address.
    pub asn: Option<Asn>,
    /// Country.
    pub country: Option<CountryCode>,
    /// Continent.
    pub continent: Option<Continent>,
}

/// Countries by continent, three bytes an entry.
const COUNTRIES: [(Continent, &str); 7] = [
    (
        Continent::Af,
        "AO BF BI BJ BW CD CF CG CI CM CV DJ DZ EG EH ER ET GA GH GM GN GQ GW KE KM LR LS LY MA MG ML \
         MR MU MW MZ NA NE NG RE RW SC SD SH SL SN SO SS ST SZ TD TG TN TZ UG YT ZA ZM ZW",
    ),
    (Continent::An, "AQ BV GS HM TF"),
    (
        Continent::As,
        "AE AF AM AZ BD BH BN BT CC CN CX CY GE HK ID IL IN IO IQ IR JO JP KG KH KP KR KW KZ LA LB LK \
         MM MN MO MV MY NP OM PH PK PS QA SA SG SY TH TJ TM TR TW UZ VN YE",
    ),
    (
        Continent::Eu,
        "AD AL AT AX BA BE BG BY CH CZ DE DK EE ES EU FI FO FR GB GG GI GR HR HU IE IM IS IT JE LI LT \
         LU LV MC MD ME MK MT NL NO PL PT RO RS RU SE SI SJ SK SM UA VA XK",
    ),
    (
        Continent::Na,
        "AG AI AW BB BL BM BQ BS BZ CA CR CU CW DM DO GD GL GP GT HN HT JM KN KY LC MF MQ MS MX NI PA \
         PM PR SV SX TC TT US VC VG VI",
    ),
    (
        Continent::Oc,
        "AS AU CK FJ FM GU KI MH MP NC NF NR NU NZ PF PG PN PW SB TK TL TO TV UM VU WF WS",
    ),
    (Continent::Sa, "AR BO BR CL CO EC FK GF GY PE PY SR UY VE"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_country_table_is_well_formed_and_disjoint() {
        let mut seen = std::collections::BTreeSet::new();
        for (continent, list) in COUNTRIES {
            for code in list.split(' ') {
                let code: CountryCode = code.parse().unwrap();
                assert!(seen.insert(code), "{code} twice");
                assert_eq!(code.continent(), Some(continent), "{code}");
            }
        }
        assert_eq!("ZZ".parse::<CountryCode>().unwrap().continent(), None);
    }

    #[test]
    fn as_numbers_are_32_bit_and_never_zero() {
        assert_eq!("AS4294967295".parse::<Asn>().unwrap().get(), u32::MAX);
        assert_eq!("7545".parse::<Asn>().unwrap().to_string(), "AS7545");
        for bad in ["0", "", "AS", "4294967296", "-1"] {
            assert_eq!(bad.parse::<Asn>(), Err(ParsePlaceError::Asn), "{bad}");
        }
    }
}
