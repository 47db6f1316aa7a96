//! Metrics of the master role.

super::metrics! {
}
