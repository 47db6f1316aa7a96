//! Typed getters: what is not of the wanted type or range is a finding.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use model::name::NameError;
use model::place::ParsePlaceError;
use model::quantity::QuantityError;
use model::{Asn, ByteCount, CountryCode, HostName, Name, Rate};
use toml::Spanned;
use toml::de::DeValue;
use toml::value::{Datetime, Offset};

use super::{Document, Section, Table};
use crate::words::clip;

/// A value being read.
#[derive(Clone, Debug)]
pub struct Value<'a> {
    pub(super) document: &'a Document<'a>,
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) value: &'a DeValue<'a>,
}

impl<'a> Value<'a> {
    /// Reports something about this value.
    pub fn refuse(&self, problem: impl Into<String>, remedy: impl Into<String>) {
        self.document.report(self.line, self.path.clone(), problem, remedy);
    }

    /// A string.
    pub fn text(&self) -> Option<&'a str> {
        self.value.as_str().or_else(|| self.wrong_type("text", "write one text in \"quotes\""))
    }

    /// A string; `remedy` says what to write where it is none.
    pub fn text_or(&self, remedy: &str) -> Option<&'a str> {
        self.value.as_str().or_else(|| self.wrong_type("text", remedy))
    }

    /// `true` or `false`.
    pub fn bool(&self) -> Option<bool> {
        self.value.as_bool().or_else(|| self.wrong_type("true or false", "write true or false"))
    }

    /// A whole number in `range`.
    pub fn u32_in(&self, range: RangeInclusive<u32>) -> Option<u32> {
        let wanted = format!("write a whole number from {} to {}", range.start(), range.end());
        let Some(number) = self.value.as_integer() else {
            return self.wrong_type("a whole number", &wanted);
        };
        let found = u32::from_str_radix(number.as_str(), number.radix()).ok();
        let found = found.filter(|n| range.contains(n));
        if found.is_none() {
            self.refuse(format!("{} is out of range", clip(&number.to_string())), wanted);
        }
        found
    }

    /// A number in `range`, with or without a decimal point.
    pub fn f64_in(&self, range: RangeInclusive<f64>) -> Option<f64> {
        let wanted = format!("write a number from {} to {}", range.start(), range.end());
        let text = match self.value {
            DeValue::Float(number) => number.as_str(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            _ => return self.wrong_type("a number", &wanted),
        };
        let found = text.parse().ok().filter(|n| range.contains(n));
        if found.is_none() {
            self.refuse(format!("{} is out of range", clip(text)), wanted);
        }
        found
    }

    /// A string that is a `T`; `what` says what that is ("a name"), and `T`'s error how to write
    /// one.
    pub fn parsed<T: FromStr<Err: Display>>(&self, what: &str) -> Option<T> {
        self.parse_text(self.text()?, what)
    }

    pub(super) fn parse_text<T: FromStr<Err: Display>>(&self, text: &str, what: &str) -> Option<T> {
        let refuse =
            |why: T::Err| self.refuse(format!("{:?} is not {what}", clip(text)), why.to_string());
        text.parse().map_err(refuse).ok()
    }

    /// A moment with its offset from UTC (RFC 3339), written without quotes; unix milliseconds, in whole
    /// seconds.
    pub fn moment(&self) -> Option<u64> {
        let remedy = "write a moment in UTC, without quotes: 2027-01-31T00:00:00Z";
        let DeValue::Datetime(moment) = self.value else {
            return self.wrong_type("a moment", remedy);
        };
        let found = unix_ms(moment);
        if found.is_none() {
            self.refuse(format!("{moment} is not a moment"), remedy);
        }
        found
    }

    /// The name of a node, site, pool, map, project or master.
    pub fn name(&self) -> Option<Name> {
        self.parsed("a name")
    }

    /// A DNS name.
    pub fn host_name(&self) -> Option<HostName> {
        let text = self.text()?;
        let read: Result<HostName, NameError> = text.parse();
        let how = |why: NameError| match why {
            NameError::BadCharacter => {
                "write labels of a-z, 0-9 and -, joined by points, and nothing else".to_owned()
            }
            why => why.to_string(),
        };
        read.map_err(|why| self.refuse(format!("{:?} is not a DNS name", clip(text)), how(why)))
            .ok()
    }

    /// A rate such as `"1 Gbit/s"`.
    pub fn rate(&self) -> Option<Rate> {
        self.quantity("a rate", QuantityError::Rate)
    }

    /// A size such as `"64 MiB"`.
    pub fn bytes(&self) -> Option<ByteCount> {
        self.quantity("a size", QuantityError::Bytes)
    }

    fn quantity<T: FromStr<Err = QuantityError>>(
        &self,
        what: &str,
        how: QuantityError,
    ) -> Option<T> {
        match self.value.as_str() {
            Some(_) => self.parsed(what),
            None => self.wrong_type(what, &how.to_string()),
        }
    }

    /// An ISO 3166-1 country code.
    pub fn country(&self) -> Option<CountryCode> {
        self.parsed("a country")
    }

    /// An AS number, as a number or as text.
    pub fn asn(&self) -> Option<Asn> {
        let DeValue::Integer(number) = self.value else {
            return self.parsed("an AS number");
        };
        let number = number.to_string();
        let refuse = |why: ParsePlaceError| {
            self.refuse(format!("{} is not an AS number", clip(&number)), why.to_string());
        };
        number.parse().map_err(refuse).ok()
    }

    /// An IP address without port.
    pub fn ip(&self) -> Option<IpAddr> {
        let text = self.text()?;
        let found = text.parse().ok();
        if found.is_none() {
            self.refuse(
                format!("{:?} is not an IP address", clip(text)),
                "write it without port or prefix length: \"192.0.2.10\" or \"2001:db8::10\"",
            );
        }
        found
    }

    /// An address and port.
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        let text = self.text()?;
        let found = text.parse().ok();
        if found.is_none() {
            self.refuse(
                format!("{:?} is not an address and port", clip(text)),
                "write ADDRESS:PORT, IPv6 in brackets: \"192.0.2.10:80\" or \"[2001:db8::10]:80\"",
            );
        }
        found
    }

    /// A path; a relative one is taken from the folder of the file that is read.
    pub fn path(&self) -> Option<PathBuf> {
        self.path_of(self.text()?)
    }

    /// The path `text`, which is a part of this value.
    pub fn path_of(&self, text: &str) -> Option<PathBuf> {
        if text.is_empty() {
            self.refuse("names no path", "write the path of a file or folder");
            return None;
        }
        Some(self.document.file.parent().unwrap_or(Path::new("")).join(text))
    }

    /// A table with the keys of `section`.
    pub fn table(&self, section: &'static Section) -> Option<Table<'a>> {
        let Some(entries) = self.value.as_table() else {
            let header = section.header;
            return self
                .wrong_type("a table", &format!("write it as {header} with its keys below"));
        };
        Some(Table::open(self.document, self.path.clone(), self.line, entries, section))
    }

    /// Whether it is a list.
    pub fn is_list(&self) -> bool {
        self.value.is_array()
    }

    /// Whether it is a table, `[table]` or `{ }`.
    pub fn is_table(&self) -> bool {
        self.value.is_table()
    }

    /// Whether it is a table in which nothing but tables and lists of tables stands, at least one.
    pub fn holds_only_tables(&self) -> bool {
        let of_tables = |value: &DeValue<'_>| match value {
            DeValue::Array(list) => list.iter().all(|element| element.get_ref().is_table()),
            value => value.is_table(),
        };
        let table = self.value.as_table().filter(|table| !table.is_empty());
        table.is_some_and(|table| table.iter().all(|(_, value)| of_tables(value.get_ref())))
    }

    /// The elements of a list of 1 to `max` tables, `[[list.of.tables]]`, each read by `read`.
    /// Elements that cannot be read are left out.
    pub fn tables_of<T>(
        &self,
        max: usize,
        what: &str,
        read: impl Fn(&Value<'a>) -> Option<T>,
    ) -> Vec<T> {
        if self.value.is_table() {
            let path = &self.path;
            let remedy = format!(
                "write [[{path}]] with two brackets on each side, once for each, or {{ }} in [ ]"
            );
            return self.wrong_type("a list of tables", &remedy).unwrap_or_default();
        }
        self.list_of(max, what, read)
    }

    /// A list of 1 to `max` elements, each read by `read`; `what` names the elements ("addresses").
    /// Elements that cannot be read are left out.
    pub fn list_of<T>(
        &self,
        max: usize,
        what: &str,
        read: impl Fn(&Value<'a>) -> Option<T>,
    ) -> Vec<T> {
        let elements = self.elements();
        if self.value.as_array().is_some_and(|a| a.is_empty()) {
            self.refuse("is an empty list", format!("give 1 to {max} {what}"));
        }
        if elements.len() > max {
            self.refuse(
                format!("has {} elements", elements.len()),
                format!("give at most {max} {what}"),
            );
        }
        let read = elements.iter().take(max).enumerate().filter_map(|(at, v)| Some((at, read(v)?)));
        let (kept, read): (Vec<usize>, Vec<T>) = read.unzip();
        if kept.len() < elements.len() {
            self.document.kept.borrow_mut().insert(self.path.clone(), kept);
        }
        read
    }

    /// A list of 1 to `max` strings.
    pub fn string_list(&self, max: usize, what: &str) -> Vec<String> {
        self.list_of(max, what, |element| element.text().map(str::to_owned))
    }

    fn elements(&self) -> Vec<Value<'a>> {
        let Some(array) = self.value.as_array() else {
            return self.wrong_type("a list", "put it in [brackets]").unwrap_or_default();
        };
        let element = |value: &'a Spanned<DeValue<'a>>| Value {
            document: self.document,
            path: self.path.clone(),
            line: self.document.line_at(value.span().start),
            value: value.get_ref(),
        };
        array.iter().map(element).collect()
    }

    fn wrong_type<T>(&self, wanted: &str, remedy: &str) -> Option<T> {
        let found = match self.value {
            DeValue::String(_) => "text",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a number with a point",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.refuse(format!("is {found}, not {wanted}"), remedy);
        None
    }
}

/// A date, a time and an offset as unix milliseconds; `None` where one of them is missing, and before
/// 1970.
fn unix_ms(moment: &Datetime) -> Option<u64> {
    let (date, time) = (moment.date?, moment.time?);
    let (hour, minute, second) = (time.hour, time.minute, time.second.unwrap_or(0).min(59));
    let (year, month, day) = (date.year, date.month, date.day);
    let text = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
    let ms = i64::try_from(model::time::parse_utc(&text)?).ok()?;
    let minutes = match moment.offset? {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(minutes),
    };
    u64::try_from(ms.checked_sub(minutes.checked_mul(60_000)?)?).ok()
}
