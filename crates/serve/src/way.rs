//! What was measured of the way to a client while its connection lasted.

use tokio::net::TcpStream;
pub use usage::Way;

/// As the kernel has it.
pub(crate) fn of_socket(socket: Option<&TcpStream>) -> Option<Way> {
    let info = sys::tcp_info::of(socket?)
        .inspect_err(|error| tracing::debug!(%error, "the kernel does not tell of a connection"))
        .ok()?;
    Some(Way {
        acked_bytes: info.acked_bytes,
        sent_segments: info.sent_segments,
        retransmitted_segments: info.retransmitted_segments,
        min_rtt_us: info.min_rtt_us,
        delivery_rate: info.delivery_rate,
    })
}

/// As QUIC has it. What was acknowledged is what was sent and not lost; a rate is not measured.
pub(crate) fn of_quic(connection: &quinn::Connection) -> Way {
    let stats = connection.stats();
    Way {
        acked_bytes: stats.udp_tx.bytes.saturating_sub(stats.path.lost_bytes),
        sent_segments: stats.path.sent_packets,
        retransmitted_segments: stats.path.lost_packets,
        min_rtt_us: u64::try_from(stats.path.min_rtt.as_micros()).unwrap_or(u64::MAX),
        delivery_rate: 0,
    }
}
