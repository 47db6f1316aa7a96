//! Limits of this process.

use std::io;

/// Raises the number of files this process may open to the most it is allowed (the hard limit),
/// and returns that number. Call once at start; children inherit it.
///
/// # Errors
/// As `getrlimit(2)` and `setrlimit(2)` have them; the old limit then stays.
pub fn raise_open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit that the call fills; it keeps no pointer.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: `limit` is a valid rlimit that the call only reads.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    #[test]
    fn raising_twice_gives_the_same_limit() {
        let limit = super::raise_open_files().unwrap();
        assert!(limit >= 64, "{limit}");
        assert_eq!(super::raise_open_files().unwrap(), limit);
    }
}
