//! Dictionaries of structured fields (RFC 9651 section 3.2), read as strictly as it says: one error,
//! and the whole field counts as absent. Only what we need is kept of the values.

/// A member's value, without its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// An integer.
    Integer(i64),
    /// A string without its quotes and escapes.
    String(Vec<u8>),
    /// A boolean; true when no value is written.
    Boolean(bool),
    /// A byte sequence, as it is written: in base64.
    Bytes(Vec<u8>),
    /// A decimal, token, date or list: none of them means anything here.
    Other,
}

/// The members of a dictionary, of doubled ones the last; `None` when the text is none.
pub(crate) fn parse(text: &[u8]) -> Option<Vec<(Vec<u8>, Value)>> {
    let mut input = Input(text.trim_ascii());
    let mut members: Vec<(Vec<u8>, Value)> = Vec::new();
    while !input.0.is_empty() {
        let key = input.key()?;
        let value = if input.take(b'=') { input.item_or_list()? } else { Value::Boolean(true) };
        input.parameters()?;
        members.retain(|(known, _)| *known != key);
        members.push((key, value));
        input.white_space();
        if input.0.is_empty() {
            break;
        }
        // A comma has a member after it.
        if !input.take(b',') {
            return None;
        }
        input.white_space();
        if input.0.is_empty() {
            return None;
        }
    }
    Some(members)
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        if found {
            self.next();
        }
        found
    }

    /// What comes and fulfils the condition.
    fn run(&mut self, is_part: impl Fn(u8) -> bool) -> Vec<u8> {
        let end = self.0.iter().position(|b| !is_part(*b)).unwrap_or(self.0.len());
        let (part, rest) = self.0.split_at_checked(end).unwrap_or((self.0, &[]));
        self.0 = rest;
        part.to_vec()
    }

    fn white_space(&mut self) {
        self.run(|b| b == b' ' || b == b'\t');
    }

    fn key(&mut self) -> Option<Vec<u8>> {
        let begins = self.peek().is_some_and(|b| b.is_ascii_lowercase() || b == b'*');
        begins.then(|| {
            self.run(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-.*".contains(&b))
        })
    }

    fn parameters(&mut self) -> Option<()> {
        while self.take(b';') {
            self.run(|b| b == b' ');
            self.key()?;
            if self.take(b'=') {
                self.item()?;
            }
        }
        Some(())
    }

    fn item_or_list(&mut self) -> Option<Value> {
        if !self.take(b'(') {
            return self.item();
        }
        loop {
            self.run(|b| b == b' ');
            if self.take(b')') {
                return Some(Value::Other);
            }
            self.item()?;
            self.parameters()?;
            if !matches!(self.peek(), Some(b' ' | b')')) {
                return None;
            }
        }
    }

    fn item(&mut self) -> Option<Value> {
        match self.peek()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string(),
            b'?' => {
                self.next();
                match self.next()? {
                    b'0' => Some(Value::Boolean(false)),
                    b'1' => Some(Value::Boolean(true)),
                    _ => None,
                }
            }
            b':' => {
                self.next();
                let bytes = self.run(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b));
                self.take(b':').then_some(Value::Bytes(bytes))
            }
            b'@' => {
                self.next();
                matches!(self.number()?, Value::Integer(_)).then_some(Value::Other)
            }
            b if b.is_ascii_alphabetic() || b == b'*' => {
                self.run(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&b));
                Some(Value::Other)
            }
            _ => None,
        }
    }

    /// An integer of at most 15 digits, or a decimal of at most 12 and 3.
    fn number(&mut self) -> Option<Value> {
        let is_negative = self.take(b'-');
        let whole = self.run(|b| b.is_ascii_digit());
        if self.take(b'.') {
            let part = self.run(|b| b.is_ascii_digit());
            let fits = (1..=12).contains(&whole.len()) && (1..=3).contains(&part.len());
            return fits.then_some(Value::Other);
        }
        if !(1..=15).contains(&whole.len()) {
            return None;
        }
        let number: i64 = std::str::from_utf8(&whole).ok()?.parse().ok()?;
        Some(Value::Integer(if is_negative { number.checked_neg()? } else { number }))
    }

    fn string(&mut self) -> Option<Value> {
        self.next();
        let mut out = Vec::new();
        loop {
            match self.next()? {
                b'"' => return Some(Value::String(out)),
                b'\\' => match self.next()? {
                    b @ (b'"' | b'\\') => out.push(b),
                    _ => return None,
                },
                b @ b' '..=b'~' => out.push(b),
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dictionaries() {
        use Value::*;
        let of = |text: &str| {
            parse(text.as_bytes()).map(|members| {
                let text = |key: Vec<u8>| std::string::String::from_utf8(key).unwrap();
                members.into_iter().map(|(key, value)| (text(key), value)).collect::<Vec<_>>()
            })
        };
        let cases: &[(&str, &[(&str, Value)])] = &[
            ("", &[]),
            ("max-age=60", &[("max-age", Integer(60))]),
            (
                "  a=1 ,\tb;x=1;y ,c=?0 ",
                &[("a", Integer(1)), ("b", Boolean(true)), ("c", Boolean(false))],
            ),
            ("a=1, a=-2", &[("a", Integer(-2))]),
            (r#"a="x\"\\, y""#, &[("a", String(br#"x"\, y"#.to_vec()))]),
            (
                "a=1.5, b=t/*, c=:aGk=:, d=(1 \"x\";p=1 t), e=@5, f=()",
                &[
                    ("a", Other),
                    ("b", Other),
                    ("c", Bytes(b"aGk=".to_vec())),
                    ("d", Other),
                    ("e", Other),
                    ("f", Other),
                ],
            ),
            ("a=999999999999999", &[("a", Integer(999_999_999_999_999))]),
        ];
        for (text, want) in cases {
            let want: Vec<_> = want.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
            assert_eq!(of(text), Some(want), "{text}");
        }
        for bad in [
            "Max-Age=60",
            "max-age =60",
            "max-age= 60",
            "a=1,",
            "a=1,,b",
            ",a",
            "a b",
            "a=",
            "a=-",
            "a=1000000000000000",
            "a=1.",
            "a=1.2345",
            "a=\"x",
            "a=\"\\x\"",
            "a=\"\u{e9}\"",
            "a=?2",
            "a=:x",
            "a=(1",
            "a=(1\"x\")",
            "a;",
            "a;=1",
            "1=2",
            "a='x'",
            "a=@1.5",
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
