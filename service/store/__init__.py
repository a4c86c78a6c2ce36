"""The only floor with SQL: one function is one statement and takes the transaction first."""
