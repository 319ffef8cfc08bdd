"""A shop that tells its customers' systems about each order, over HTTP.

`app` has the task, `producer` the transaction that takes an order, `receiver` plays the customers, `demo` runs it all.
"""
