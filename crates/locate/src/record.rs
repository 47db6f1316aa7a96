//! What of a database record counts, whatever the schema.
//!
//! | Meaning | GeoLite2, DB-IP | IPinfo | ip-location-db |
//! |---|---|---|---|
//! | country | `country.iso_code` | `country_code`, or `country` as text | `country_code` |
//! | continent | `continent.code` | `continent_code`, or `continent` as text | |
//! | AS number | `autonomous_system_number` | `asn` as `AS64496` | `autonomous_system_number`, `asn` |
//! | AS name | `autonomous_system_organization` | `as_name` | `autonomous_system_organization`, `as_organization` |
//!
//! A value of another type or a code that is none counts as unknown: databases mark the unknown in
//! many ways (`-`, `ZZ` aside, empty text).

use std::fmt;
use std::str::FromStr;

use model::{Asn, Continent, CountryCode};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

/// A decoded record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) country: Option<CountryCode>,
    pub(crate) continent: Option<Continent>,
    pub(crate) asn: Option<Asn>,
    pub(crate) as_name: Option<Box<str>>,
}

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RecordVisitor)
    }
}

struct RecordVisitor;

impl<'de> Visitor<'de> for RecordVisitor {
    type Value = Record;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record with country or AS number")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Record, A::Error> {
        let mut record = Record::default();
        while let Some(key) = map.next_key::<&str>()? {
            match key {
                "country" | "country_code" => {
                    let value: Scalar = map.next_value()?;
                    record.country = value.code().or(record.country);
                }
                "continent" | "continent_code" => {
                    let value: Scalar = map.next_value()?;
                    record.continent = value.code().or(record.continent);
                }
                "autonomous_system_number" | "asn" => {
                    let value: Scalar = map.next_value()?;
                    record.asn = value.asn().or(record.asn);
                }
                "autonomous_system_organization" | "as_organization" | "as_name" => {
                    if let Scalar::Text(name) = map.next_value()? {
                        record.as_name = Some(name.into());
                    }
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(record)
    }
}

/// A text, a number, or the `code` or `iso_code` of a map.
enum Scalar<'a> {
    Text(&'a str),
    Number(u64),
    Other,
}

impl Scalar<'_> {
    fn code<T: FromStr>(&self) -> Option<T> {
        match self {
            Self::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    fn asn(&self) -> Option<Asn> {
        match self {
            Self::Text(text) => text.parse().ok(),
            Self::Number(n) => u32::try_from(*n).ok().and_then(Asn::new),
            Self::Other => None,
        }
    }
}

impl<'de> Deserialize<'de> for Scalar<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Text(text))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Number(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Scalar<'de>, E> {
        Ok(u64::try_from(number).map_or(Scalar::Other, Scalar::Number))
    }

    fn visit_u128<E>(self, _: u128) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Other)
    }

    fn visit_f32<E>(self, _: f32) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Other)
    }

    fn visit_borrowed_bytes<E>(self, _: &'de [u8]) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Other)
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Scalar<'de>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar<'de>, A::Error> {
        let mut code = Scalar::Other;
        while let Some(key) = map.next_key::<&str>()? {
            if matches!(key, "code" | "iso_code") {
                code = map.next_value()?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(code)
    }
}
