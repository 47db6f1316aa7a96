//! The `Date` field (RFC 9110 section 6.6.1), where hyper does not write it.

use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

use http::HeaderValue;
use model::Now;

thread_local! {
    /// The last one, and its second: there are many responses in a second.
    static LAST: RefCell<Option<(u64, HeaderValue)>> = const { RefCell::new(None) };
}

/// The date of a response that begins now.
pub(crate) fn header(now: Now) -> HeaderValue {
    let second = now.wall_ms.div_euclid(1000);
    LAST.with_borrow_mut(|last| match last {
        Some((of, value)) if *of == second => value.clone(),
        _ => {
            let value = print(second);
            *last = Some((second, value.clone()));
            value
        }
    })
}

fn print(unix_s: u64) -> HeaderValue {
    // Years that the format does not know are no date of ours.
    const END_OF_YEAR_9999: u64 = 253_402_300_799;
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(unix_s.min(END_OF_YEAR_9999)));
    let text = httpdate::fmt_http_date(time.unwrap_or(UNIX_EPOCH));
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_that_of_the_moment() {
        let at = |wall_ms| Now { wall_ms, ..Now::default() };
        for (wall_ms, want) in [
            (784_111_777_000, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (784_111_777_999, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (784_111_778_000, "Sun, 06 Nov 1994 08:49:38 GMT"),
            (u64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(header(at(wall_ms)), want, "{wall_ms}");
        }
    }
}
