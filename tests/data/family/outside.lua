-- Lies outside lua/, where no module may be found.
return "outside"
