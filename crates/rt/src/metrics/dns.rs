//! Metrics of the dns role.

super::metrics! {
}
