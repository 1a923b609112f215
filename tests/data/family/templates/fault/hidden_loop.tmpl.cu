//@ while true do
//@   attempt(function() while true do end end)
//@ end
