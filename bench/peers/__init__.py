"""The same wide work on other queues on PostgreSQL. Nothing here is part of the product."""
